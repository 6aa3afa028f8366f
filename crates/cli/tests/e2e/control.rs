// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's side: status, set, drain, signals, metrics; and FLUSH across connections.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, MIB, Random, Volume, flashfront, free_port, get, must, output, show};

/// What scripts may rely on.
const CONTRACT: [&str; 14] = [
    "mode",
    "blocks_cached",
    "blocks_dirty",
    "dirty_limit_blocks",
    "read_hits",
    "read_misses",
    "writes",
    "origin_reads_bytes",
    "origin_writes_bytes",
    "cache_reads_bytes",
    "cache_writes_bytes",
    "corrupt_blocks",
    "lost_blocks",
    "rss_bytes",
];

#[test]
fn status_has_what_scripts_rely_on_and_counts() {
    let mut volume = Volume::served(32, 64, "writeback");
    let before = volume.status();
    for key in CONTRACT {
        let value = &before[key];
        let fits = if key == "mode" { value == "writeback" } else { value.is_u64() };
        assert!(fits, "{key}: {before}");
    }
    let mut client = volume.connect();
    let mut bytes = [9; 8192];
    for block in 0..100 {
        client.write_at(block * 65536, &bytes, false).expect("the volume can be written");
    }
    client.flush().expect("the volume can be flushed");
    client.read_at(0, &mut bytes).expect("the volume can be read");
    assert_eq!(bytes, [9; 8192]);
    client.read_at(32 << 20, &mut bytes).expect("the volume can be read");
    let after = volume.status();
    let grown = |key: &str| after[key].as_u64().unwrap_or(0) - before[key].as_u64().unwrap_or(0);
    assert_eq!(grown("writes"), 100, "{after}");
    assert_eq!(grown("read_hits"), 2, "{after}");
    assert_eq!(grown("read_misses"), 2, "{after}");
    assert!(grown("cache_writes_bytes") >= 200 * 4096, "{after}");
    assert!(after["blocks_cached"].as_u64() >= Some(200), "{after}");
    // A person's view of the same.
    assert!(must(&mut volume.ask("status")).contains("writeback"));
    volume.stop();
}

#[test]
fn status_shows_where_everything_is() {
    let volume = Volume::new(32, 64);
    must(volume.format().args(["--name", "a.b"]));
    // A client in another folder has no use for a path that begins here.
    let folder = volume.place.dir();
    let mut serve = flashfront();
    serve.current_dir(folder).args(["serve", "--cache", "cache.img", "--origin", "origin.img", "--name", "a.b"]);
    serve.arg("--control").arg(&volume.control).arg("--state").arg(volume.place.file("state"));
    serve.args(["--nbd", "unix:s", "--nbd", "tcp:127.0.0.1:0", "--vhost-user-blk", "unix:v", "--durability", "always"]);
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    let ready = daemon.ready();
    let ready: Vec<&str> = ready.split(' ').collect();
    assert_eq!(ready[0], format!("nbd+unix:///?socket={}", folder.join("s").display()));
    let status = volume.status();
    let (cache, origin) = (volume.cache.display().to_string(), volume.origin.display().to_string());
    assert_eq!((&status["cache_path"], &status["mirror_path"]), (&cache.clone().into(), &Value::Null), "{status}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["uptime_s"].is_u64(), "{status}");
    let shown = &status["volumes"][0];
    assert_eq!(shown["origin_path"], origin);
    assert_eq!((&shown["durability"], &shown["policy"]), (&"always".into(), &"gated".into()));
    let uris = [
        format!("nbd+unix:///a.b?socket={}", folder.join("s").display()),
        format!("{}/a.b", ready[1]),
        format!("vhost-user-blk:{}", folder.join("v").display()),
    ];
    assert_eq!(shown["uris"], serde_json::json!(uris), "{status}");
    let text = must(&mut volume.ask("status"));
    for said in [&cache, &origin, &uris[0], &uris[1], &uris[2]] {
        assert!(text.contains(said.as_str()), "{said} is missing from\n{text}");
    }
    daemon.stop();
}

/// The figures of one kind of requests: p50, p99, the longest in microseconds, and how many.
fn latency(status: &Value, kind: &str) -> (f64, f64, f64, u64) {
    let took = &status["volumes"][0]["latency_us"][kind];
    let number = |key: &str| took[key].as_f64().unwrap_or_else(|| panic!("no number {key} of {kind}: {status}"));
    (number("p50"), number("p99"), number("max"), took["count"].as_u64().expect("a count"))
}

#[test]
fn latencies_are_told_by_what_a_request_turned_out_to_be() {
    for threads in [1, 2] {
        let mut volume = Volume::new(32, 64);
        volume.threads = threads;
        volume.options = vec!["--read-around=0B", "--inject=origin:stall,op=read,hold=40ms"];
        must(volume.format().args(["--mode", "writeback"]));
        volume.start();
        for kind in ["hit", "miss", "write", "flush"] {
            assert_eq!(latency(&volume.status(), kind), (0.0, 0.0, 0.0, 0));
        }
        let mut client = volume.connect();
        let mut bytes = [3; 4096];
        for nth in 0..20 {
            client.write_at(nth * 8192, &bytes, false).expect("the volume can be written");
        }
        for nth in 0..10 {
            client.read_at(nth * 8192, &mut bytes).expect("the volume can be read");
        }
        for nth in 0..3 {
            client.read_at((32 + nth) << 20, &mut bytes).expect("the volume can be read");
        }
        // What needs the origin for one of its blocks is a miss.
        client.read_at(0, &mut [0; 8192]).expect("the volume can be read");
        client.flush().expect("the volume can be flushed");
        let status = volume.status();
        let counts = ["hit", "miss", "write", "flush"].map(|kind| latency(&status, kind).3);
        assert_eq!(counts, [10, 4, 20, 1], "{status}");
        let ((hit, ..), (miss, _, longest, _)) = (latency(&status, "hit"), latency(&status, "miss"));
        // A middle of a bucket: a sixteenth less or more.
        assert!(miss >= 37_500.0 && longest >= 40_000.0 && hit > 0.0 && hit < miss, "{status}");
        let text = must(&mut volume.ask("status"));
        assert!(text.contains("last minute") && text.contains("  miss  "), "{text}");
        volume.stop();
    }
}

#[test]
fn the_log_tells_when_what_was_changed_and_who_came_and_went() {
    let mut volume = Volume::new(32, 64);
    volume.options = vec!["-v"];
    must(volume.format().args(["--mode", "writeback"]));
    volume.start();
    let mut client = volume.connect();
    client.write_at(0, &[1; 8192], false).expect("the volume can be written");
    must(volume.ask("set").args(["--mode", "writethrough", "--dirty-limit", "8MiB", "--sequential-bypass", "0B"]));
    must(&mut volume.ask("drain"));
    client.disconnect().expect("the daemon is there");
    volume.stop();
    let log = volume.stderr();
    let uid = rustix::process::getuid().as_raw();
    let who = format!("uid {uid}, pid {}", std::process::id());
    for said in [
        "set by the operator: volume data: mode from writeback to writethrough",
        "set by the operator: dirty limit from ",
        " to 8 MiB",
        "set by the operator: sequential bypass from 4 MiB to 0 B",
        "drain begins, by the operator: ",
        "drained: nothing is dirty",
        &format!("a client came: {who}"),
        &format!("{who} opened volume data"),
        &format!("{who} left volume data after "),
    ] {
        assert!(log.contains(said), "{said} is missing from\n{log}");
    }
    let left = log.lines().find(|line| line.contains("left volume data")).expect("it is there");
    assert!(
        [" 8.0", " 8.1"].iter().any(|size| left.contains(size)) && left.contains(" KiB received from it"),
        "{left}"
    );
    // 2026-11-28T05:50:00.123Z
    let is_stamp = |text: &str| text.len() == 24 && text.as_bytes()[10] == b'T' && text.ends_with('Z');
    assert!(log.lines().all(|line| line.split(' ').next().is_some_and(is_stamp)), "{log}");
}

/// The journal has a time of its own for each line.
#[test]
fn the_journal_gets_no_stamps() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let log = File::create(&volume.log).expect("the log can be written").metadata().expect("it is there");
    let mut serve = volume.serve();
    serve.env("JOURNAL_STREAM", format!("{}:{}", log.dev(), log.ino()));
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    daemon.stop();
    let log = volume.stderr();
    assert!(log.lines().count() > 0 && log.lines().all(|line| line.starts_with(' ')), "{log}");
}

#[test]
fn status_knows_what_another_size_would_change() {
    let mut volume = Volume::served(64, 256, "writethrough");
    assert_eq!(volume.status()["what_if"], serde_json::json!([]));
    assert!(must(&mut volume.ask("status")).contains("not known yet"));
    let mut client = volume.connect();
    let mut bytes = vec![0; 256 << 10];
    // All of the volume twice, not in order, or it would pass the cache: four times the cache holds
    // it, twice does not.
    for nth in 0..2048 {
        client.read_at(nth * 397 % 1024 * (256 << 10), &mut bytes).expect("the volume can be read");
    }
    let status = volume.status();
    let what_if = status["what_if"].as_array().expect("a list");
    let read = |nth: usize| what_if[nth]["origin_read_blocks"].as_u64().expect("a number");
    assert_eq!(what_if.iter().map(|it| &it["size_percent"]).collect::<Vec<_>>(), [50, 100, 200, 400], "{status}");
    assert!(read(3) < read(1) && read(1) <= read(0), "{status}");
    assert!(must(&mut volume.ask("status")).contains("            4 times as large"));
    volume.stop();
}

#[test]
fn sockets_are_their_owners_alone() {
    let mut volume = Volume::served(32, 64, "writeback");
    for socket in [&volume.control, &volume.socket] {
        let mode = std::fs::metadata(socket).expect("the socket is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", socket.display());
    }
    volume.stop();
}

#[test]
fn set_changes_modes_and_limits_on_the_run_and_modes_last() {
    let mut volume = Volume::served(32, 64, "writeback");
    let mut client = volume.connect();
    for mode in ["writethrough", "writearound", "passthrough", "writeback", "writethrough"] {
        must(volume.ask("set").args(["--mode", mode]));
        assert_eq!(volume.status()["mode"], mode);
        client.write_at(4096, &[7; 512], false).expect("the volume can be written");
    }
    must(volume.ask("set").args(["--dirty-limit", "2MiB", "--sequential-bypass", "0"]));
    assert_eq!(volume.gauge("dirty_limit_blocks"), 512);
    volume.stop();
    volume.start();
    assert_eq!(volume.status()["mode"], "writethrough", "a mode is the volume's, not the daemon's");
    volume.stop();
}

/// The daemon's end is a broken pipe too, and no reader that has gone.
#[test]
fn who_watches_a_daemon_that_ends_is_told() {
    for kill in [false, true] {
        let mut volume = Volume::served(32, 64, "writeback");
        let mut watch = volume.ask("status");
        let mut child = watch.arg("--watch").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.as_mut().expect("flashfront can be started");
        let mut stdout = BufReader::new(child.stdout.take().expect("the pipe was asked for"));
        let mut seen = String::new();
        stdout.read_line(&mut seen).expect("a pipe can be read");
        assert!(seen.starts_with("flashfront "), "this is no terminal: {seen:?}");
        if kill {
            volume.kill9()
        } else {
            volume.stop()
        }
        stdout.read_to_string(&mut seen).expect("a pipe can be read");
        let (mut said, status) = (String::new(), child.wait().expect("our own child can be waited for"));
        child.stderr.take().expect("the pipe was asked for").read_to_string(&mut said).expect("a pipe can be read");
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("the daemon has gone") || said.contains("the daemon is stopping"), "{said:?}");
        assert!(!seen.contains('\x1b'), "{seen:?}");
    }
}

/// An operator who waits for a daemon that does not answer hears of that.
#[test]
fn a_daemon_that_does_not_answer_is_waited_for_and_that_is_said() {
    let volume = Volume::served(32, 64, "writeback");
    volume.signal(Signal::STOP);
    let mut child = volume.ask("status").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it is there");
    let (mut said, mut out) = (String::new(), String::new());
    let mut stderr = BufReader::new(child.stderr.take().expect("the pipe was asked for"));
    stderr.read_line(&mut said).expect("a pipe can be read");
    volume.signal(Signal::CONT);
    child.stdout.take().expect("the pipe was asked for").read_to_string(&mut out).expect("a pipe can be read");
    assert!(child.wait().expect("our own child can be waited for").success(), "{said}{out}");
    assert!(said.contains("has not answered for 5 s yet") && out.contains("serving"), "{said}{out}");
}

#[test]
fn the_dirty_limit_holds() {
    let mut volume = Volume::served(32, 64, "writeback");
    must(volume.ask("set").args(["--dirty-limit", "2MiB"]));
    let mut client = volume.connect();
    for block in 0..6000_u64 {
        // Scattered: no two neighbours.
        client.write_at(block * 2 * 4096 % (60 << 20), &[1; 4096], false).expect("the volume can be written");
        if block % 500 == 0 {
            let dirty = volume.gauge("blocks_dirty");
            assert!(dirty <= 512, "{dirty} blocks are dirty, 512 may be");
        }
    }
    volume.stop();
    volume.assert_sound();
}

#[test]
fn flush_covers_what_other_connections_wrote() {
    let mut volume = Volume::served(32, 64, "writeback");
    let mut clients: Vec<_> = (0..4).map(|_| volume.connect()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        client.write_at(nth as u64 * 512, &[nth as u8 + 1; 512], false).expect("the volume can be written");
    }
    // A fifth connection, which wrote nothing.
    volume.connect().flush().expect("the volume can be flushed");
    volume.kill9();
    volume.start();
    let mut bytes = [0; 2048];
    volume.connect().read_at(0, &mut bytes).expect("the volume can be read");
    for (nth, sector) in bytes.chunks(512).enumerate() {
        assert!(sector.iter().all(|byte| usize::from(*byte) == nth + 1), "sector {nth}: {:?}", &sector[..4]);
    }
    volume.stop();
}

#[test]
fn drain_empties_a_volume_in_use() {
    let mut volume = Volume::served(32, 64, "writeback");
    let mut client = volume.connect();
    for block in 0..3000_u64 {
        client.write_at(block * 3 * 4096, &[5; 4096], false).expect("the volume can be written");
    }
    let report = must(volume.ask("drain").arg("--json"));
    let _: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
    assert_eq!(volume.gauge("blocks_dirty"), 0);
    // It is over: a write is dirty again, and at once readable.
    client.write_at(0, &[6; 4096], true).expect("the volume can be written");
    volume.stop();
    volume.assert_sound();
}

#[test]
fn a_drain_that_takes_too_long_is_stopped() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let mut daemon = Daemon::spawn(volume.serve().args(["--inject", "origin:nospace,op=write"]), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    client.write_at(0, &[5; MIB as usize], true).expect("the volume can be written");
    let late = output(volume.ask("drain").args(["--timeout", "0s"]));
    assert_eq!(late.status.code(), Some(1), "{}", show(&late));
    assert!(
        show(&late).contains("not drained within 0s") && show(&late).contains("1.00 MiB still dirty"),
        "{}",
        show(&late)
    );
    let status = volume.status();
    assert_eq!((&status["draining"], &status["blocks_dirty"]), (&false.into(), &256.into()), "{status}");
    let report = output(volume.ask("drain").args(["--json", "--timeout", "1ms"]));
    let report: Value =
        serde_json::from_slice(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", show(&report)));
    assert_eq!((&report["drained"], &report["timed_out"]), (&false.into(), &true.into()), "{report}");
    drop(client);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended().code(), Some(1), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("1.00 MiB of dirty data stay in the cache"), "{}", daemon.stderr());
}

#[test]
fn drain_ends_well_on_a_volume_that_is_dirty_again_at_once() {
    let mut volume = Volume::served(32, 64, "writeback");
    let busy = Arc::new(AtomicBool::new(true));
    let mut client = volume.connect();
    let writer = std::thread::spawn({
        let busy = Arc::clone(&busy);
        move || {
            for block in 0_u64.. {
                client.write_at(block * 7 % 8192 * 4096, &[5; 4096], false).expect("the volume can be written");
                if !busy.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    for nth in 1..=3 {
        let before = volume.gauge("drains");
        let report = must(volume.ask("drain").arg("--json"));
        let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
        assert_eq!(report["drained"], true, "drain {nth}: {report}");
        assert_eq!(volume.gauge("drains"), before + 1);
    }
    busy.store(false, Ordering::Relaxed);
    writer.join().expect("the writer ends well");
    volume.stop();
    volume.assert_sound();
}

#[test]
fn tcp_on_loopback_and_metrics() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let http = free_port();
    let mut serve = volume.serve_nowhere();
    serve.args(["--nbd", "tcp:127.0.0.1:0", "--http", &format!("127.0.0.1:{http}")]);
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    let uri = daemon.ready();
    // The port that the system chose is named.
    let address = uri.strip_prefix("nbd://").expect("a TCP URI").trim_end_matches('/');
    let mut greeting = [0; 16];
    let mut client = TcpStream::connect(address).expect("the daemon listens");
    client.read_exact(&mut greeting).expect("the daemon greets");
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");
    drop(client);

    let answer = get(http, "/metrics");
    assert!(answer.contains("flashfront_") && answer.contains("blocks_dirty"), "{answer}");
    let none = "flashfront_request_duration_seconds_bucket{le=\"+Inf\",volume=\"data\",kind=\"miss\"} 0";
    assert!(answer.lines().any(|line| line == none), "{answer}");
    // The dashboard's data: the same as `status --json`, and a history.
    let told: Value = serde_json::from_str(&get(http, "/api/status")).expect("JSON");
    let status = volume.status();
    let keys = |it: &Value| it.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&told), keys(&status));
    assert_eq!(
        (&told["pid"], &told["volumes"], &told["cache_path"]),
        (&status["pid"], &status["volumes"], &status["cache_path"])
    );
    let history: Value = serde_json::from_str(&get(http, "/api/history?range=1h")).expect("JSON");
    assert_eq!(history["step_s"], 10, "{history}");
    for name in ["hit_ratio", "read_bytes_per_s", "dirty_bytes", "hit_p99_us", "cache_written_bytes_per_s"] {
        assert_eq!(history["series"][name].as_array().map(Vec::len), Some(360), "{name}");
    }
    daemon.stop();
}

#[test]
fn garbage_on_the_sockets_harms_nobody() {
    let mut volume = Volume::served(32, 64, "writeback");
    let mut good = volume.connect();
    good.write_at(0, &[4; 4096], true).expect("the volume can be written");
    let before = volume.gauge("rss_bytes");
    let mut random = Random::new(3);
    for nth in 0..200_usize {
        for socket in [&volume.socket, &volume.control] {
            let mut client = UnixStream::connect(socket).expect("the daemon listens");
            // A client that speaks NBD up to some point, and then anything; or anything at once.
            let mut bytes = Vec::new();
            if nth % 2 == 0 {
                bytes.extend(3_u32.to_be_bytes());
                bytes.extend(b"IHAVEOPT");
                bytes.extend((nth as u32 % 12).to_be_bytes());
                bytes.extend(((nth as u32) << 26).to_be_bytes());
            }
            bytes.extend(random.bytes(nth * 7));
            // The daemon may hang up before it has read all.
            client.write_all(&bytes).ok();
        }
    }
    let mut bytes = [0; 4096];
    good.read_at(0, &mut bytes).expect("the volume can be read");
    assert_eq!(bytes, [4; 4096]);
    let grown = volume.gauge("rss_bytes").saturating_sub(before);
    assert!(grown < 64 * MIB, "{grown} bytes more after 400 bad clients");
    volume.stop();
    volume.assert_sound();
}

#[test]
fn every_verb_explains_itself() {
    for verb in ["try", "format", "serve", "status", "set", "drain", "detach", "destage", "check", "repair", "dump"] {
        let output = output(flashfront().arg(verb).arg("--help"));
        let said = show(&output);
        assert!(output.status.success() && output.stdout.len() > 100, "{verb}: {said}");
        if verb != "serve" {
            assert!(verb == "set" || said.contains("--json"), "{verb} has no --json: {said}");
        }
    }
}

#[test]
fn dump_says_what_is_in_a_stopped_cache() {
    let mut volume = Volume::served(32, 64, "writearound");
    volume.stop();
    let text = must(flashfront().arg("dump").arg(&volume.cache).arg("--json"));
    let dump: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(dump.to_string().contains("writearound"), "{dump}");
    assert!(must(flashfront().arg("dump").arg(&volume.cache)).contains("writearound"));
}
