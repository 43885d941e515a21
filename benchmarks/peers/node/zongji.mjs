// Both zongjis: node zongji.mjs PACKAGE JOB. Packages are looked for beside the directory that BENCH_MODULES names.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import zlib from 'node:zlib';

const [, , name, file] = process.argv;
const job = JSON.parse(fs.readFileSync(file, 'utf8'));
const kinds = job.kinds.split(',');
const require = createRequire(path.join(process.env.BENCH_MODULES, 'package.json'));
let ZongJi = require(name);
ZongJi = ZongJi.default || ZongJi;

const crcTable = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});
const crc32 = zlib.crc32 || ((bytes) => {
  let crc = ~0;
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
});

function cpu() {
  const used = process.resourceUsage();
  return (used.userCPUTime + used.systemCPUTime) / 1e6;
}

function memory(key) {
  return Number(new RegExp(`${key}:\\s+(\\d+)`).exec(fs.readFileSync('/proc/self/status', 'utf8'))[1]) / 1024;
}

// That of benchmarks/values.py.
function text(kind, value) {
  switch (kind) {
    case 'double': return String(Math.trunc(value * 8));
    case 'enum': return String(['new', 'paid', 'sent'].indexOf(value) + 1);
    case 'json': return (typeof value === 'string' ? value : JSON.stringify(value)).replaceAll(' ', '');
    case 'datetime': case 'timestamp': return String(new Date(value).getTime() * 1000);
    case 'date': return String(Math.floor(new Date(value).getTime() / 86400000));
    default: return value;
  }
}

let rows = 0, ids = 0, checksum = 0n, first = 0, half = null, seen = [];
const idle = memory('VmRSS'), cpuBefore = cpu(), begun = performance.now();
const seconds = () => (performance.now() - begun) / 1000;

function add(row, number) {
  Object.values(row).forEach((value, i) => {
    if (value === null) return;
    const found = text(kinds[i], value);
    checksum += BigInt(number + i) * BigInt(crc32(Buffer.isBuffer(found) ? found : Buffer.from(String(found))));
  });
}

function take(before, after) {
  rows++;
  ids += Number(after.id);
  if (job.latencies) {
    seen.push(`${after.id} ${BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n}\n`);
  } else if (job.check) {
    add(after, 1);
    if (before) add(before, 1 + kinds.length);
  }
}

function end() {
  const result = {
    rows, ids, checksum: 'CHECKSUM', seconds: seconds(), cpu_seconds: cpu() - cpuBefore, half_rows: half[0], half_seconds: half[1],
    half_cpu: half[2], first_seconds: first, peak_mib: memory('VmHWM'), idle_mib: idle,
  };
  if (job.latencies) fs.writeFileSync(job.latencies, seen.join(''));
  console.log('RESULT ' + JSON.stringify(result).replace('"CHECKSUM"', String(checksum)));
  process.exit(0);
}

const reader = new ZongJi({ host: job.host, port: job.port, user: job.user, password: job.password, timezone: 'Z' });
reader.on('error', (error) => { console.error(error); process.exit(1); });
reader.on('binlog', (event) => {
  if (!event.rows) return;
  for (const row of event.rows) {
    if (job.update) take(row.before, row.after);
    else take(null, row);
  }
  first ||= seconds();
  if (!half && rows >= job.rows / 2) half = [rows, seconds(), cpu() - cpuBefore];
  if (rows >= job.rows) end();
});
reader.start({
  serverId: job.server_id, filename: job.journal, position: job.offset,
  includeEvents: ['tablemap', job.update ? 'updaterows' : 'writerows', 'rotate'], includeSchema: { [job.schema]: true },
});
