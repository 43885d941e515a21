package canal;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Tables in the memory of a local master that take MERGE, by writing all their rows anew: what Spark itself has none of. */
public class MergeCatalog implements TableCatalog, SupportsNamespaces {
  private static final Map<String, Rows> TABLES = new ConcurrentHashMap<>();
  private String name;

  public void initialize(String name, CaseInsensitiveStringMap options) { this.name = name; }
  public String name() { return name; }
  public Identifier[] listTables(String[] namespace) {
    return TABLES.keySet().stream().map(table -> Identifier.of(namespace, table)).toArray(Identifier[]::new);
  }
  public Table loadTable(Identifier id) throws NoSuchTableException {
    Rows found = TABLES.get(id.name());
    if (found == null) throw new NoSuchTableException(id);
    return found;
  }
  public Table createTable(Identifier id, Column[] columns, Transform[] parts, Map<String, String> properties) {
    TABLES.put(id.name(), new Rows(id.name(), columns, properties));
    return TABLES.get(id.name());
  }
  public Table alterTable(Identifier id, TableChange... changes) throws NoSuchTableException {
    Rows found = (Rows) loadTable(id);
    for (TableChange change : changes)
      if (change instanceof TableChange.SetProperty set) found.properties.put(set.property(), set.value());
      else throw new UnsupportedOperationException(change.toString());
    return found;
  }
  public boolean dropTable(Identifier id) { return TABLES.remove(id.name()) != null; }
  public void renameTable(Identifier from, Identifier to) { throw new UnsupportedOperationException(); }
  public boolean namespaceExists(String[] namespace) { return true; }
  public String[][] listNamespaces() { return new String[][] {{"shop"}}; }
  public String[][] listNamespaces(String[] namespace) { return new String[0][]; }
  public Map<String, String> loadNamespaceMetadata(String[] namespace) { return Map.of(); }
  public void createNamespace(String[] namespace, Map<String, String> metadata) {}
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {}
  public boolean dropNamespace(String[] namespace, boolean cascade) { return false; }

  private static class Rows implements SupportsRead, SupportsWrite, SupportsRowLevelOperations {
    final String name;
    final Column[] columns;
    final Map<String, String> properties;
    volatile List<InternalRow> rows = List.of();

    Rows(String name, Column[] columns, Map<String, String> properties) {
      this.name = name;
      this.columns = columns;
      this.properties = new HashMap<>(properties);
    }
    public String name() { return name; }
    public Column[] columns() { return columns; }
    public Map<String, String> properties() { return properties; }
    public Set<TableCapability> capabilities() { return Set.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE); }
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
      return () -> new AllRows(name, schema);
    }
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return new NewRows(name, false); }
    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
      return () -> new RowLevelOperation() {
        public Command command() { return info.command(); }
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return Rows.this.newScanBuilder(options); }
        public WriteBuilder newWriteBuilder(LogicalWriteInfo written) { return new NewRows(name, true); }
      };
    }
  }

  private record AllRows(String table, StructType readSchema) implements Scan, Batch {
    public Batch toBatch() { return this; }
    public InputPartition[] planInputPartitions() { return new InputPartition[] {new Whole()}; }
    public PartitionReaderFactory createReaderFactory() { return new Readers(table); }
  }

  private record Whole() implements InputPartition {}

  private record Readers(String table) implements PartitionReaderFactory {
    public PartitionReader<InternalRow> createReader(InputPartition part) {
      Iterator<InternalRow> rows = TABLES.get(table).rows.iterator();
      return new PartitionReader<>() {
        InternalRow row;
        public boolean next() {
          row = rows.hasNext() ? rows.next() : null;
          return row != null;
        }
        public InternalRow get() { return row; }
        public void close() {}
      };
    }
  }

  private record NewRows(String table, boolean replaces) implements WriteBuilder, Write, BatchWrite {
    public Write build() { return this; }
    public BatchWrite toBatch() { return this; }
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) { return new Writers(); }
    public void commit(WriterCommitMessage[] parts) {
      List<InternalRow> rows = new ArrayList<>(replaces ? List.of() : TABLES.get(table).rows);
      for (WriterCommitMessage part : parts) rows.addAll(((Written) part).rows());
      TABLES.get(table).rows = rows;
    }
    public void abort(WriterCommitMessage[] parts) {}
  }

  private record Writers() implements DataWriterFactory {
    public DataWriter<InternalRow> createWriter(int part, long task) {
      Written written = new Written(new ArrayList<>());
      return new DataWriter<>() {
        public void write(InternalRow row) { written.rows().add(row.copy()); }
        public WriterCommitMessage commit() { return written; }
        public void abort() {}
        public void close() {}
      };
    }
  }

  private record Written(ArrayList<InternalRow> rows) implements WriterCommitMessage {}
}
