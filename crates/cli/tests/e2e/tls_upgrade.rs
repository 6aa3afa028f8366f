// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients inside TLS stay connected over `flashfront upgrade`, over upgrades that fail, and while
//! the cache changes. Their TLS is another one's: libnbd's and QEMU's is GnuTLS.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::attach::{attach, detach};
use crate::harness::{Daemon, MIB, Random, Volume, assert_same, flashfront, must, output, show, skip_without, tool};
use crate::resize::{grow, shrink};
use crate::tls::{Pki, pki};
use crate::upgrade::{CACHE_MIB, ORIGIN_MIB, refused, script, upgraded};

const MANY: &str = "--threads=3";
/// What fio does with the volume at `$uri`.
const FIO: &str = "fio --name=v --ioengine=nbd --rw=randwrite --iodepth=16 --verify=crc32c \
    --bssplit=512/20:4k/50:64k/20:1m/10 --size=16m --loops=2 --verify_backlog=64 --uri=\"$uri\"";
/// Priorities of GnuTLS: as QEMU comes, and what it can be told.
const PRIORITIES: [&str; 3] = [
    "NORMAL",
    "NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-GCM",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305",
];

/// A volume that is served inside TLS; the port.
fn served(threads: &str) -> (Volume, Pki, Daemon, String) {
    let volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    let pki = pki(volume.place.dir(), "one");
    must(&mut volume.format());
    let mut command = volume.serve_nowhere();
    command.args(["--nbd", "tcp:localhost:0", threads, "--tls-verify-peer", "--tls-certificates"]).arg(&pki.server);
    let daemon = Daemon::spawn(&mut command, &volume.log);
    let port = daemon.ready().rsplit(':').next().expect("it has a port").to_owned();
    (volume, pki, daemon, port)
}

/// A program that dies while it is given all clients, before it has opened the cache.
fn dies_with_clients(volume: &Volume) -> PathBuf {
    let waits = r#"echo '{"say":"waits","version":"0"}' >&0"#;
    script(volume, "dies-late", &format!("head -n 1 >/dev/null\n{waits}\nhead -n 1 >/dev/null\nkill -9 $$"))
}

/// Upgrades again and again, every other time to a program that dies, as long as `work` goes on;
/// how many clients stayed.
fn upgrade_under(volume: &Volume, work: impl FnOnce() + Send) -> u64 {
    let (done, dies) = (AtomicBool::new(false), dies_with_clients(volume));
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            work();
            done.store(true, Ordering::SeqCst);
        });
        let (mut stayed, mut upgrades) = (0, 0);
        // Work that has failed never says that it is done.
        while !done.load(Ordering::SeqCst) && !running.is_finished() {
            stayed += upgraded(volume)["clients"].as_u64().expect("it says how many");
            upgrades += 1;
            let said = refused(volume, &dies);
            assert!(said.contains("The daemon serves on; clients waited"), "{said}");
        }
        running.join().expect("no client sees an error");
        println!("{upgrades} upgrades, and as many that failed; {stayed} times a client stayed");
        stayed
    })
}

#[test]
fn fio_verifies_inside_tls_over_upgrades_and_failed_ones() {
    if skip_without(&["fio", "nbdkit"]) {
        return;
    }
    for threads in ["--threads=1", MANY] {
        let (volume, pki, daemon, port) = served(threads);
        // fio can't say where a client's certificates are. nbdkit can, and is a client of
        // libnbd, too.
        let mut fio = tool("nbdkit");
        fio.args(["-U", "-", "nbd", "hostname=localhost", "tls=require"]).arg(format!("port={port}"));
        fio.arg(format!("tls-certificates={}", pki.client.display())).arg("--run").arg(FIO);
        fio.current_dir(volume.place.dir());
        let (mut said, mut ended_well) = (String::new(), false);
        let stayed = upgrade_under(&volume, || {
            let fio = output(&mut fio);
            (said, ended_well) = (show(&fio), fio.status.success());
        });
        assert!(ended_well && stayed > 0, "{said}\n{}", volume.stderr());
        daemon.stop();
        volume.assert_sound();
    }
}

#[test]
fn nbdcopy_copies_inside_tls_over_upgrades_and_failed_ones() {
    if skip_without(&["nbdcopy"]) {
        return;
    }
    let (volume, pki, daemon, port) = served("--threads=1");
    let (image, back) = (volume.place.file("image.img"), volume.place.file("back.img"));
    fs::write(&image, Random::new(11).bytes((ORIGIN_MIB * MIB) as usize)).expect("the image can be written");
    let uri = format!("nbds://localhost:{port}/?tls-certificates={}", pki.client.display());
    let many = ["--connections=4", "--requests=64", "--request-size=1048576"];
    let stayed = upgrade_under(&volume, || {
        for _ in 0..2 {
            must(tool("nbdcopy").args(many).arg("--flush").arg(&image).arg(&uri));
            must(tool("nbdcopy").args(many).arg(&uri).arg(&back));
            assert_same(&image, &back);
        }
    });
    assert!(stayed > 0);
    daemon.stop();
    volume.assert_sound();
}

/// A qemu-io that does one thing after the other.
struct QemuIo {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl QemuIo {
    fn command(port: &str, pki: &Pki, priority: &str) -> Command {
        let mut command = tool("qemu-io");
        let credentials =
            format!("tls-creds-x509,id=tls,endpoint=client,priority={priority},dir={}", pki.client.display());
        command.arg("--object").arg(credentials).arg("--image-opts");
        command.arg(format!("driver=nbd,host=localhost,port={port},tls-creds=tls"));
        command
    }

    fn start(port: &str, pki: &Pki, priority: &str) -> Self {
        let mut command = Self::command(port, pki, priority);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("qemu-io can be started");
        let commands = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, commands, lines }
    }

    /// Gives it a command, and waits until it says `words`.
    #[track_caller]
    fn does(&mut self, command: &str, words: &str) {
        writeln!(self.commands, "{command}").expect("the client reads");
        let said = self.lines.by_ref().map(|line| line.expect("it speaks text")).find(|line| {
            assert!(words == "read failed" || !line.contains("failed"), "{command}: {line}");
            line.contains(words)
        });
        assert!(said.is_some(), "{command}: the client never says {words}");
    }

    fn end(mut self) {
        drop(self.commands);
        self.child.wait().expect("it ends with its input");
    }
}

#[test]
fn qemu_stays_connected_over_upgrades_and_changes_of_the_cache() {
    if skip_without(&["qemu-io"]) {
        return;
    }
    for (priority, threads) in PRIORITIES.into_iter().zip(["--threads=1", MANY, "--threads=2"]) {
        let (volume, pki, daemon, port) = served(threads);
        let mut client = QemuIo::start(&port, &pki, priority);
        client.does("write -P 7 0 4M", "wrote 4194304/4194304");
        let dies = dies_with_clients(&volume);
        let stays = |client: &mut QemuIo, change: &dyn Fn()| {
            change();
            client.does("read -P 7 0 4M", "read 4194304/4194304");
            client.does("write -P 7 1M 64k", "wrote 65536/65536");
        };
        for _ in 0..3 {
            stays(&mut client, &|| assert_eq!(upgraded(&volume)["clients"], 1, "{}", volume.stderr()));
            stays(&mut client, &|| assert!(refused(&volume, &dies).contains("serves on")));
        }
        stays(&mut client, &|| grow(&volume, 2 * CACHE_MIB));
        stays(&mut client, &|| shrink(&volume, CACHE_MIB));
        stays(&mut client, &|| detach(&volume));
        stays(&mut client, &|| attach(&volume, &volume.cache));
        stays(&mut client, &|| assert_eq!(upgraded(&volume)["clients"], 1, "{}", volume.stderr()));
        client.end();
        daemon.stop();
        volume.assert_sound();
    }
}

#[test]
fn clients_inside_tls_are_cut_off_only_if_that_is_said() {
    if skip_without(&["qemu-io"]) {
        return;
    }
    for threads in ["--threads=1", "--threads=2"] {
        let (volume, pki, daemon, port) = served(threads);
        let mut client = QemuIo::start(&port, &pki, PRIORITIES[0]);
        client.does("write -P 7 0 4M", "wrote 4194304/4194304");
        let text = must(volume.ask("upgrade").args(["--disconnect", "--json"]));
        let report: Value = serde_json::from_str(&text).expect("it speaks JSON");
        assert_eq!(report["clients"], 0, "{report}");
        client.does("read -P 7 0 4M", "read failed");
        client.end();
        let said = must(QemuIo::command(&port, &pki, PRIORITIES[0]).args(["-c", "read -P 7 0 4M"]));
        assert!(said.contains("read 4194304/4194304") && !said.contains("failed"), "{said}");
        daemon.stop();
        volume.assert_sound();
    }
}

/// A program from before clients inside TLS were handed over says so in its own words.
#[test]
fn an_older_program_takes_over_without_clients_inside_tls() {
    let (volume, _pki, daemon, _port) = served("--threads=1");
    let heard = volume.place.file("heard");
    let says = r#"{"say":"fails","why":"it takes over by version 4 of the hand-over, and the daemon hands over by version 5"}"#;
    let older = script(&volume, "older", &format!("head -n 1 >{heard:?}\necho '{says}' >&0"));
    let offered = || {
        let line = fs::read_to_string(&heard).expect("the script has written it");
        let order: Value = serde_json::from_str(&line).expect("an order is JSON");
        order["offer"]["hand_over"].clone()
    };
    let said = refused(&volume, &older);
    assert_eq!(offered(), 5);
    assert!(
        said.contains("say --disconnect to hand over by version 4") && said.contains("nothing was changed"),
        "{said}"
    );
    let output = output(volume.ask("upgrade").arg("--disconnect").arg("--program").arg(&older));
    assert!(!output.status.success() && !show(&output).contains("say --disconnect"), "{}", show(&output));
    assert_eq!(offered(), 4);
    // And this program takes over from an older one, which hands over by that version.
    let program = flashfront().get_program().to_owned();
    must(volume.ask("upgrade").arg("--disconnect").arg("--program").arg(Path::new(&program)));
    daemon.stop();
}

/// A connection that has begun a TLS handshake, and says nothing more. Whoever reaches the port can
/// make one.
fn stands_still(port: &str) -> TcpStream {
    let mut far = TcpStream::connect(format!("localhost:{port}")).expect("the daemon listens");
    far.read_exact(&mut [0; 18]).expect("it greets");
    // The client's flags, and STARTTLS.
    far.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").expect("it reads");
    far.read_exact(&mut [0; 20]).expect("it agrees");
    far
}

#[test]
fn a_handshake_that_stands_still_keeps_nothing_off() {
    if skip_without(&["qemu-io"]) {
        return;
    }
    for threads in ["--threads=1", MANY] {
        let (volume, pki, daemon, port) = served(threads);
        let mut client = QemuIo::start(&port, &pki, PRIORITIES[0]);
        client.does("write -P 7 0 4M", "wrote 4194304/4194304");
        let mut still = stands_still(&port);
        assert_eq!(upgraded(&volume)["clients"], 1, "{}", volume.stderr());
        assert!(matches!(still.read(&mut [0]), Ok(0) | Err(_)), "it is closed");
        let mut still = stands_still(&port);
        grow(&volume, 2 * CACHE_MIB);
        assert!(matches!(still.read(&mut [0]), Ok(0) | Err(_)), "it is closed");
        client.does("read -P 7 0 4M", "read 4194304/4194304");
        client.end();
        daemon.stop();
    }
}

/// A new program demands certificates of clients. Those that came before were not asked for one.
#[test]
fn clients_that_came_before_certificates_were_demanded_are_let_go() {
    if skip_without(&["qemu-io"]) {
        return;
    }
    let volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    let pki = pki(volume.place.dir(), "one");
    must(&mut volume.format());
    let (file, state) = (volume.place.file("config.toml"), volume.place.file("state"));
    let says = |verify: bool| {
        let text = format!(
            "cache = {:?}\ncontrol = {:?}\nstate = {state:?}\n[tls]\ncertificates = {:?}\nverify_peer = {verify}\n[[listen]]\nnbd = \"tcp:localhost:0\"\n[[volume]]\nname = \"data\"\norigin = {:?}\n",
            volume.cache, volume.control, pki.server, volume.origin
        );
        fs::write(&file, text).expect("the folder is ours");
    };
    says(false);
    let daemon = Daemon::spawn(flashfront().arg("serve").arg("--config").arg(&file), &volume.log);
    let port = daemon.ready().rsplit(':').next().expect("it has a port").to_owned();
    let mut client = QemuIo::start(&port, &pki, PRIORITIES[0]);
    client.does("write -P 7 0 4M", "wrote 4194304/4194304");
    assert_eq!(upgraded(&volume)["clients"], 1, "{}", volume.stderr());
    client.does("read -P 7 0 4M", "read 4194304/4194304");
    says(true);
    upgraded(&volume);
    client.does("read -P 7 0 4M", "read failed");
    client.end();
    let mut client = QemuIo::start(&port, &pki, PRIORITIES[0]);
    client.does("read -P 7 0 4M", "read 4194304/4194304");
    upgraded(&volume);
    client.does("read -P 7 0 4M", "read 4194304/4194304");
    client.end();
    daemon.stop();
}
