// ferretdb HOST:PORT FOLDER: a FerretDB that keeps its databases as SQLite files in the folder.
// ferretdb --version: which one it is.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if os.Args[1] == "--version" {
		fmt.Println(version())
		return
	}
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: os.Args[1]},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + os.Args[2] + "/",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err = server.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/FerretDB/FerretDB" {
			return "FerretDB " + module.Version
		}
	}
	return "FerretDB"
}
