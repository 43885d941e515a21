// go-mysql as a contestant: peers NAME JOB, where NAME is syncer, sync_handler or canal.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/canal"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

type job struct {
	Host, User, Password, Journal, Schema, Flavor, Kinds, Latencies string
	Port                                                            int
	Offset                                                          uint32
	Rows                                                            int64
	Update, Check                                                   bool
	ServerID                                                        uint32 `json:"server_id"`
}

// meter counts as benchmarks/meter.py does.
type meter struct {
	job
	kinds                []string
	rows, ids            int64
	checksum             uint64
	seen                 []string
	begun                time.Time
	cpu, first           float64
	halfRows             int64
	halfSeconds, halfCPU float64
	idle                 float64
}

func cpu() float64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func memory(name string) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, behind, _ := strings.Cut(string(status), name+":")
	kib, _ := strconv.ParseFloat(strings.Fields(behind)[0], 64)
	return kib / 1024
}

func whole(value any) int64 {
	switch number := value.(type) {
	case int64:
		return number
	case uint64:
		return int64(number)
	case int32:
		return int64(number)
	case int16:
		return int64(number)
	case int8:
		return int64(number)
	}
	panic(fmt.Sprintf("an integer is a %T", value))
}

// text is that of benchmarks/values.py.
func text(kind string, value any) string {
	var plain string
	switch found := value.(type) {
	case string:
		plain = found
	case []byte:
		plain = string(found)
	}
	switch kind {
	case "int", "enum":
		return strconv.FormatInt(whole(value), 10)
	case "double":
		return strconv.FormatInt(int64(value.(float64)*8), 10)
	case "json":
		return strings.ReplaceAll(plain, " ", "")
	case "datetime", "timestamp":
		at, err := time.Parse("2006-01-02 15:04:05", plain)
		must(err)
		return strconv.FormatInt(at.UnixMicro(), 10)
	case "date":
		day, err := time.Parse("2006-01-02", plain)
		must(err)
		return strconv.FormatInt(day.Unix()/86400, 10)
	}
	return plain
}

func (m *meter) add(row []any, first int) {
	for i, value := range row {
		if value != nil {
			m.checksum += uint64(first+i) * uint64(crc32.ChecksumIEEE([]byte(text(m.kinds[i], value))))
		}
	}
}

// take counts the rows of an event, and ends the process behind the last one.
func (m *meter) take(rows [][]any) {
	step := 1
	if m.Update {
		step = 2
	}
	for i := step - 1; i < len(rows); i += step {
		m.rows++
		m.ids += whole(rows[i][0])
		if m.Latencies != "" {
			m.seen = append(m.seen, fmt.Sprintln(rows[i][0], time.Now().UnixNano()))
		} else if m.Check {
			m.add(rows[i], 1)
			if m.Update {
				m.add(rows[i-1], 1+len(m.kinds))
			}
		}
	}
	if m.first == 0 {
		m.first = time.Since(m.begun).Seconds()
	}
	if m.halfRows == 0 && m.rows >= m.Rows/2 {
		m.halfRows, m.halfSeconds, m.halfCPU = m.rows, time.Since(m.begun).Seconds(), cpu()-m.cpu
	}
	if m.rows >= m.Rows {
		m.end()
	}
}

func (m *meter) end() {
	seconds, used := time.Since(m.begun).Seconds(), cpu()-m.cpu
	if m.Latencies != "" {
		must(os.WriteFile(m.Latencies, []byte(strings.Join(m.seen, "")), 0o600))
	}
	result, err := json.Marshal(map[string]any{
		"rows": m.rows, "ids": m.ids, "checksum": m.checksum, "seconds": seconds, "cpu_seconds": used,
		"half_rows": m.halfRows, "half_seconds": m.halfSeconds, "half_cpu": m.halfCPU,
		"first_seconds": m.first, "peak_mib": memory("VmHWM"), "idle_mib": m.idle,
	})
	must(err)
	fmt.Println("RESULT " + string(result))
	os.Exit(0)
}

func (m *meter) HandleEvent(event *replication.BinlogEvent) error {
	switch found := event.Event.(type) {
	case *replication.RowsEvent:
		if string(found.Table.Schema) == m.Schema {
			m.take(found.Rows)
		}
	case *replication.TransactionPayloadEvent:
		for _, inner := range found.Events {
			must(m.HandleEvent(inner))
		}
	}
	return nil
}

type handler struct {
	canal.DummyEventHandler
	*meter
}

func (h *handler) OnRow(event *canal.RowsEvent) error {
	h.take(event.Rows)
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	m := &meter{}
	given, err := os.ReadFile(os.Args[2])
	must(err)
	must(json.Unmarshal(given, &m.job))
	m.kinds = strings.Split(m.Kinds, ",")
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	start := mysql.Position{Name: m.Journal, Pos: m.Offset}
	m.idle, m.begun, m.cpu = memory("VmRSS"), time.Now(), cpu()
	if os.Args[1] == "canal" {
		config := canal.NewDefaultConfig()
		config.Addr = fmt.Sprintf("%s:%d", m.Host, m.Port)
		config.User, config.Password, config.Flavor, config.ServerID = m.User, m.Password, m.Flavor, m.ServerID
		config.Dump.ExecutionPath = ""
		config.IncludeTableRegex = []string{regexp.QuoteMeta(m.Schema) + `\..*`}
		config.Logger = quiet
		reader, err := canal.NewCanal(config)
		must(err)
		reader.SetEventHandler(&handler{meter: m})
		must(reader.RunFrom(start))
	}
	config := replication.BinlogSyncerConfig{
		ServerID: m.ServerID, Flavor: m.Flavor, Host: m.Host, Port: uint16(m.Port), User: m.User, Password: m.Password, Logger: quiet,
	}
	if os.Args[1] == "sync_handler" {
		config.SynchronousEventHandler = m
	}
	streamer, err := replication.NewBinlogSyncer(config).StartSync(start)
	must(err)
	if os.Args[1] == "sync_handler" {
		select {}
	}
	for {
		event, err := streamer.GetEvent(context.Background())
		must(err)
		must(m.HandleEvent(event))
	}
}
