// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers of other makers, and another Flashfront, as origins: killed under load, slow, refusing.
//!
//! Writers read back what they write while the server is killed. In the end the server's own image
//! must hold what they saw last, though the server is killed once more before it is looked at.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;

use flashfront_serve::frontend::nbd::{Client, ClientError, Listen, connect};
use serde_json::Value;

use crate::bridges::storage_daemon;
use crate::harness::{MIB, Random, Volume, must, output, show, skip_without, tool};
use crate::stamps::{Record, SECTOR};
use crate::told;
use crate::writers::{Answered, lock, write_until_over};

const KILLS: u64 = 4;
/// Requests between two kills.
const REQUESTS: u64 = 300;
const WRITERS: u64 = 2;
const PART_SECTORS: u64 = 16 * MIB / SECTOR as u64;
const IMAGE_BYTES: u64 = WRITERS * PART_SECTORS * SECTOR as u64;

/// A program that serves an image at a socket, in the foreground.
pub(crate) struct Server {
    command: Box<dyn Fn() -> Command>,
    socket: PathBuf,
    child: Option<Child>,
}

impl Server {
    pub(crate) fn new(socket: PathBuf, command: impl Fn() -> Command + 'static) -> Self {
        Self { command: Box::new(command), socket, child: None }
    }

    pub(crate) fn uri(&self) -> PathBuf {
        format!("nbd+unix:///?socket={}", self.socket.display()).into()
    }

    /// Starts it, and waits until it listens.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "it runs");
        // A server that was killed has left its socket behind.
        fs::remove_file(&self.socket).ok();
        let mut command = (self.command)();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = self.child.insert(spawned.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        // A server that wants TLS refuses this client, and listens.
        let at = Listen::Unix(self.socket.clone());
        while let Err(ClientError::Io(_)) = connect(&at, "", true).and_then(Client::disconnect) {
            let ended = child.try_wait().expect("the child is ours");
            assert_eq!(ended, None, "{command:?} has ended");
            std::thread::yield_now();
        }
    }

    pub(crate) fn kill9(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("the child is ours");
        child.wait().expect("the child is ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill9();
        }
    }
}

/// A server that runs, as the origin of a volume that is not formatted yet.
fn serve(command: impl Fn(&Path, &Path) -> Command + 'static) -> (Volume, Server, PathBuf) {
    let mut volume = Volume::new(32, 1);
    let (image, socket) = (volume.place.sparse("below.img", IMAGE_BYTES), volume.place.socket("below"));
    let (at, of) = (socket.clone(), image.clone());
    let mut server = Server::new(socket, move || command(&at, &of));
    volume.origin = server.uri();
    server.start();
    (volume, server, image)
}

fn nbdkit(socket: &Path, image: &Path, filters: &[&str], parameters: &[&str]) -> Command {
    let mut command = tool("nbdkit");
    command.arg("--foreground").arg("--unix").arg(socket);
    command.args(filters.iter().map(|name| format!("--filter={name}")));
    command.arg("file").arg(image).args(parameters);
    command
}

#[track_caller]
fn wait_for(volume: &Volume, is: impl Fn(&Value) -> bool) {
    while !is(&volume.status()["volumes"][0]) {
        std::thread::yield_now();
    }
}

/// Kills the server again and again under writers. No client sees an error; all that was written is
/// on the volume, and after a drain on the server's side.
fn survives(volume: &mut Volume, server: &mut Server, seed: u64) -> Vec<Mutex<Record>> {
    must(&mut volume.format());
    volume.start();
    let records: Vec<_> =
        (0..WRITERS).map(|nth| Mutex::new(Record::new(seed, nth * PART_SECTORS, PART_SECTORS))).collect();
    let answered = Answered::default();
    let clients: Vec<_> = records.iter().map(|_| volume.connect()).collect();
    std::thread::scope(|scope| {
        for (nth, mut client) in clients.into_iter().enumerate() {
            let (answered, records) = (&answered, &records);
            let mut random = Random::new(seed ^ nth as u64);
            scope.spawn(move || {
                let written = write_until_over(&mut client, records, nth, &mut random, answered);
                answered.gone();
                written.expect("no client sees that the server dies");
            });
        }
        for nth in 1..=KILLS {
            answered.wait_for(nth * REQUESTS);
            server.kill9();
            wait_for(volume, |it| it["origin_state"] == "away");
            server.start();
            wait_for(volume, |it| it["origin_state"] == "up" && it["reconnects"] == nth);
        }
        answered.wait_for((KILLS + 1) * REQUESTS);
        answered.end();
    });
    volume.drain();
    let status = volume.status();
    assert_eq!((&status["corrupt_blocks"], &status["lost_blocks"]), (&0.into(), &0.into()), "{status}");
    server.kill9();
    volume.kill9();
    volume.assert_sound();
    told::assert_log_is_told(&volume.stderr());
    records
}

#[track_caller]
fn assert_held(image: &Path, records: &[Mutex<Record>]) {
    let image = fs::File::open(image).expect("the file is ours");
    let mut bytes = vec![0; PART_SECTORS as usize * SECTOR];
    for record in records {
        let record = lock(record);
        image.read_exact_at(&mut bytes, record.first() * SECTOR as u64).expect("the file is ours");
        assert_eq!(record.wrong_alive(record.first(), &bytes), None);
    }
}

/// A volatile cache that forgets; errors that the server itself tries again; answers that are late.
#[test]
fn nbdkit_with_faults_is_killed_under_load() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, mut server, image) = serve(|socket, image| {
        let filters = ["retry-request", "error", "delay", "cache"];
        let errors = ["error=EIO", "error-rate=0.3%", "retry-request-retries=9", "retry-request-delay=1"];
        nbdkit(socket, image, &filters, &[&errors[..], &["wdelay=1ms", "rdelay=1ms", "cache=writeback"]].concat())
    });
    let records = survives(&mut volume, &mut server, 1);
    assert_held(&image, &records);
}

#[test]
fn qemu_nbd_is_killed_under_load() {
    if skip_without(&["qemu-nbd"]) {
        return;
    }
    let (mut volume, mut server, image) = serve(|socket, image| {
        let mut command = tool("qemu-nbd");
        command.args(["--persistent", "--shared=8", "--format=raw", "--discard=unmap", "--socket"]);
        command.arg(socket).arg(image);
        command
    });
    let records = survives(&mut volume, &mut server, 2);
    assert_held(&image, &records);
}

/// A qcow2 image, whose metadata a server that is killed may leave behind, and must not.
#[test]
fn qemu_storage_daemon_is_killed_under_load() {
    if skip_without(&["qemu-storage-daemon", "qemu-img"]) {
        return;
    }
    let (mut volume, mut server, image) = serve(|socket, image| {
        let qcow2 = image.with_extension("qcow2");
        if !qcow2.exists() {
            must(tool("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&qcow2).arg(IMAGE_BYTES.to_string()));
        }
        storage_daemon(socket, &qcow2)
    });
    let records = survives(&mut volume, &mut server, 3);
    let qcow2 = image.with_extension("qcow2");
    // 3: room was lost as qemu was killed, and no data.
    let checked = output(tool("qemu-img").arg("check").arg(&qcow2));
    assert!(matches!(checked.status.code(), Some(0 | 3)), "{}", show(&checked));
    must(tool("qemu-img").args(["convert", "-O", "raw"]).arg(&qcow2).arg(&image));
    assert_held(&image, &records);
}

/// A cache in front of a cache, as on a machine with disks and one with an SSD.
#[test]
fn another_flashfront_is_killed_under_load() {
    let below = Rc::new(Volume::new(32, IMAGE_BYTES / MIB));
    must(&mut below.format());
    let served = Rc::clone(&below);
    let (mut volume, mut server, _) = serve(move |socket, _| {
        let mut command = served.serve_nowhere();
        command.arg(format!("--nbd=unix:{}", socket.display()));
        command.stderr(fs::File::options().create(true).append(true).open(&served.log).expect("the log is ours"));
        command
    });
    let records = survives(&mut volume, &mut server, 4);
    server.start();
    must(&mut below.ask("drain"));
    server.kill9();
    below.assert_sound();
    assert_held(&below.origin, &records);
}

/// A long stream goes past the cache. While its server is away it goes into the cache, and its
/// client sees no error.
#[test]
fn a_stream_sees_no_error_while_its_server_is_away() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, mut server, image) = serve(|socket, image| nbdkit(socket, image, &[], &[]));
    must(volume.format().args(["--mode", "writeback"]));
    volume.options = vec!["--device-timeout", "1s", "--sequential-bypass", "256KiB"];
    volume.start();
    let data = Random::new(6).bytes(24 * MIB as usize);
    let mut client = volume.connect();
    let mut chunks = (0..).step_by(65536).zip(data.chunks(65536));
    let mut write = |count: usize, client: &mut Client| {
        for (at, chunk) in chunks.by_ref().take(count) {
            client.write_at(at, chunk, false).expect("no client sees that the server dies");
        }
    };
    write(128, &mut client);
    assert!(volume.status()["bypassed_sequential"].as_u64() > Some(100), "{}", volume.status());
    // What no flush has covered would be doubtful, and the next FLUSH told so.
    client.flush().expect("the server is well");
    server.kill9();
    // The next one is on its way to the server, and waits for the timeout. The others don't.
    write(100, &mut client);
    let away = volume.status();
    assert_eq!(away["volumes"][0]["origin_state"], "away", "{away}");
    assert!(away["blocks_dirty"].as_u64() >= Some(1600), "all of it is in the cache: {away}");
    server.start();
    wait_for(&volume, |it| it["origin_state"] == "up" && it["origin_hang"].is_null());
    write(usize::MAX, &mut client);
    client.flush().expect("nothing was lost");
    volume.drain();
    assert!(fs::read(&image).expect("the file is ours")[..data.len()] == data);
    volume.stop();
    told::assert_log_is_told(&volume.stderr());
    volume.assert_sound();
}

/// An origin whose server refuses writes: clients don't notice, dirty data stays, and the log sends
/// nobody to this machine's disks.
#[test]
fn a_server_that_refuses_writes_is_told_as_a_server() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, server, image) = serve(|socket, image| {
        let trigger = format!("error-pwrite-file={}", image.with_extension("full").display());
        let errors = [trigger.as_str(), "error-pwrite=ENOSPC", "error-pwrite-rate=100%"];
        nbdkit(socket, image, &["error"], &errors)
    });
    let full = image.with_extension("full");
    fs::write(&full, "").expect("the place is ours");
    must(&mut volume.format());
    volume.start();
    let data = Random::new(5).bytes(MIB as usize);
    let mut client = volume.connect();
    client.write_at(0, &data, true).expect("the cache takes it");
    let mut drain = volume.ask("drain").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program");
    wait_for(&volume, |it| it["origin_write_errors"].as_u64().is_some_and(|errors| errors > 0));
    let said = volume.stderr();
    assert!(said.contains("no space left (ENOSPC); make room where the NBD server keeps the export"), "{said}");
    assert!(!said.contains("dmesg") && !said.contains("smartctl"), "{said}");
    told::assert_log_is_told(&said);
    fs::remove_file(&full).expect("the file is ours");
    assert!(drain.wait().expect("it ends").success(), "{}", volume.stderr());
    assert!(fs::read(&image).expect("the file is ours")[..data.len()] == data);
    volume.stop();
    drop(server);
    volume.assert_sound();
}
