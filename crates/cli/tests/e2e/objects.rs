// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes in an object store behind the cache: in a folder always, and in a server that speaks S3
//! where moto's is there. Daemons are killed, writers overtake each other, stores go away.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{MIB, Random, Volume, flashfront, free_port, is_root, must, output, show, skip_without, tool};

const SIZE: u64 = 16 * MIB;
const BLOCK: u64 = 4096;

/// Where the objects are.
enum Store {
    Folder,
    /// A folder with an encrypted and compressed volume; the file with its key.
    Sealed(tempfile::NamedTempFile),
    Server {
        port: u16,
        child: Child,
    },
}

impl Store {
    fn sealed() -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        fs::write(file.path(), "0a".repeat(32)).expect("it can be written");
        Self::Sealed(file)
    }

    /// moto's server keeps its objects in RAM: it is not killed here, since they were gone then.
    fn server() -> Self {
        let port = free_port();
        let child = tool("moto_server")
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("moto_server is there");
        let server = Self::Server { port, child };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        must(tool("curl").args(["--silent", "--fail", "-X", "PUT", &format!("http://127.0.0.1:{port}/bucket")]));
        server
    }

    /// Lets a program find the store.
    fn known<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Self::Server { port, .. } = self {
            command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
            command.env("AWS_ACCESS_KEY_ID", "none").env("AWS_SECRET_ACCESS_KEY", "none");
            command.env("AWS_REGION", "us-east-1");
        }
        if let Self::Sealed(keys) = self {
            command.env("FLASHFRONT_OBJECT_KEYS", keys.path());
        }
        command
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Self::Server { child, .. } = self {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// A volume in a store, with a cache on this host.
struct Disk {
    volume: Volume,
    store: Store,
}

impl Disk {
    fn new(store: Store) -> Self {
        let mut volume = Volume::new(64, 1);
        volume.origin = match &store {
            Store::Folder | Store::Sealed(_) => format!("file://{}", volume.place.file("store").display()).into(),
            Store::Server { .. } => "s3://bucket/disk".into(),
        };
        let disk = Self { volume, store };
        let form: &[&str] = if matches!(disk.store, Store::Sealed(_)) { &["--compress", "--encrypt"] } else { &[] };
        disk.object("create", &[&["--size", "16MiB"], form].concat());
        disk.format(&disk.volume);
        disk
    }

    fn object(&self, verb: &str, more: &[&str]) -> String {
        let mut command = flashfront();
        command.args(["object", verb]).arg(&self.volume.origin).args(more);
        must(self.store.known(&mut command))
    }

    fn format(&self, volume: &Volume) {
        must(self.store.known(&mut volume.format()));
    }

    fn start(&mut self) {
        let mut serve = self.volume.serve();
        self.volume.start_by(self.store.known(&mut serve));
    }

    /// A start under the name of another host, if root can do that here.
    fn start_elsewhere(&self, volume: &Volume) -> Option<Output> {
        if !is_root() {
            return None;
        }
        let serve = volume.serve();
        let mut command = tool("unshare");
        // A start that is not refused serves on: then the test fails, and does not hang.
        command.args([
            "--uts",
            "timeout",
            "20",
            "sh",
            "-c",
            "echo elsewhere > /proc/sys/kernel/hostname; exec \"$@\"",
            "sh",
        ]);
        command.arg(serve.get_program()).args(serve.get_args());
        Some(output(self.store.known(&mut command)))
    }

    /// Another host: a cache of its own, and the same place in the store.
    fn other_host(&self) -> Volume {
        let mut other = Volume::new(64, 1);
        other.origin.clone_from(&self.volume.origin);
        self.format(&other);
        if let Some(refused) = self.start_elsewhere(&other) {
            let said = show(&refused);
            assert!(!refused.status.success() && said.contains("has the volume open to write"), "{said}");
        }
        let mut serve = other.serve();
        other.start_by(self.store.known(&mut serve));
        other
    }

    /// What the store alone has, and that it is sound.
    fn content(&self) -> Vec<u8> {
        let checked: Value = serde_json::from_str(&self.object("check", &["--data", "--json"])).expect("JSON");
        assert_eq!(checked["ok"], true, "{checked}");
        let file = self.volume.place.file("exported");
        fs::remove_file(&file).ok();
        self.object("export", &[file.to_str().expect("text")]);
        fs::read(file).expect("it was written")
    }
}

fn first(volume: &Volume) -> Value {
    volume.status()["volumes"][0].clone()
}

fn wait_for(volume: &Volume, is: impl Fn(&Value) -> bool) {
    while !is(&first(volume)) {
        std::thread::yield_now();
    }
}

/// The place of the n-th write. Places are written again and again.
fn place(nth: u64) -> u64 {
    nth * 7 % 64 * BLOCK
}

fn payload(nth: u64) -> Vec<u8> {
    Random::new(nth).bytes(BLOCK as usize)
}

/// Writes so many blocks, each with a FLUSH of its own.
fn write(volume: &Volume, numbers: std::ops::Range<u64>) {
    let mut client = volume.connect();
    for nth in numbers {
        client.write_at(place(nth), &payload(nth), false).expect("the volume takes writes");
        client.flush().expect("the cache device is well");
    }
}

/// How many writes the content has: exactly the first ones, and none after them.
fn prefix(content: &[u8], all: u64) -> u64 {
    let written = &content[..64 * BLOCK as usize];
    let mut disk = vec![0; written.len()];
    let mut found = (disk == written).then_some(0);
    for nth in 0..all {
        let at = place(nth) as usize;
        disk[at..at + BLOCK as usize].copy_from_slice(&payload(nth));
        if disk == written {
            found = Some(nth + 1);
        }
    }
    found.expect("the store has a state in which the volume was")
}

fn survives(store: Store) {
    let mut disk = Disk::new(store);
    for round in 0..3 {
        disk.start();
        write(&disk.volume, round * 50..round * 50 + 50);
        disk.volume.kill9();
        // The store alone has some first writes, whatever the cache still holds.
        prefix(&disk.content(), 150);
    }
    disk.start();
    disk.volume.drain();
    let status = first(&disk.volume);
    assert_eq!((&status["unsent_bytes"], &status["unsent_age_s"]), (&0.into(), &0.into()), "{status}");
    assert_eq!((&status["fenced"], &status["destage"]), (&false.into(), &"ordered".into()));
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 150), 150);
    // A clean stop leaves the volume so that the next start knows it.
    disk.start();
    disk.volume.stop();
    assert!(!disk.volume.stderr().contains("was changed"), "{}", disk.volume.stderr());
}

/// A killed daemon loses nothing, and the store alone is an exact prefix at any time.
#[test]
fn a_killed_daemon_loses_nothing() {
    survives(Store::Folder);
    survives(Store::sealed());
    if !skip_without(&["moto_server", "curl"]) {
        survives(Store::server());
    }
}

/// Another host takes over while the first one sleeps. The first one finds that out, acknowledges
/// no further write, and changes nothing.
#[test]
fn a_writer_that_slept_is_fenced() {
    let stores = [Some(Store::Folder), (!skip_without(&["moto_server", "curl"])).then(Store::server)];
    for store in stores.into_iter().flatten() {
        let mut disk = Disk::new(store);
        disk.start();
        write(&disk.volume, 0..40);
        disk.volume.signal(Signal::STOP);
        let before = prefix(&disk.content(), 40);
        let mut other = disk.other_host();
        let mut mine = vec![0; SIZE as usize];
        other.connect().read_at(0, &mut mine).expect("the volume can be read");
        assert_eq!(prefix(&mine, 40), before);
        other.connect().write_at(SIZE - BLOCK, &payload(99), false).expect("the new writer writes");
        other.drain();

        disk.volume.signal(Signal::CONT);
        let mut client = disk.volume.connect();
        let refused = (0..).find(|nth| {
            let written = client.write_at(place(*nth), &payload(1000 + nth), false);
            written.and_then(|()| client.flush()).is_err()
        });
        assert!(refused.is_some());
        wait_for(&disk.volume, |it| it["fenced"] == true);
        let status = first(&disk.volume);
        assert!(status["fenced_by"].as_str().is_some_and(|by| by.contains("epoch 3")), "{status}");
        assert_eq!(status["read_only"], true);
        assert!(disk.volume.stderr().contains("opened by another writer"), "{}", disk.volume.stderr());
        assert!(must(&mut disk.volume.ask("status")).contains("FENCED"));
        // Reads go on.
        client.read_at(0, &mut vec![0; BLOCK as usize]).expect("the cache has it");
        // A fenced daemon stops, says what it keeps, and changes nothing any more.
        let crashes = matches!(disk.store, Store::Folder);
        disk.volume.signal(if crashes { Signal::KILL } else { Signal::TERM });
        assert!(!disk.volume.exit().success());
        other.stop();
        let content = disk.content();
        assert_eq!(prefix(&content, 40), before, "the fenced writer has changed something");
        assert!(content[(SIZE - BLOCK) as usize..] == payload(99));
        // What the first cache still has is older: it is refused, with what to do.
        let started = output(disk.store.known(&mut disk.volume.serve()));
        let said = show(&started);
        let why = if crashes { "opened by another writer since" } else { "was changed since the last clean stop" };
        assert!(!started.status.success() && said.contains(why), "{said}");
    }
}

/// No client notices a store that is away, until the cache is full. `status` tells since when.
#[test]
fn a_store_that_is_away_is_waited_for() {
    let mut disk = Disk::new(Store::Folder);
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.drain();
    let (store, hidden) = (disk.volume.place.file("store"), disk.volume.place.file("hidden"));
    fs::rename(&store, &hidden).expect("it can be moved");
    fs::write(&store, b"no folder").expect("a file can be made");
    write(&disk.volume, 20..60);
    wait_for(&disk.volume, |it| it["origin_state"] == "away");
    let status = first(&disk.volume);
    assert!(status["away_why"].as_str().is_some_and(|why| why.contains("data/")), "{status}");
    assert!(status["unsent_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{status}");
    write(&disk.volume, 60..80);
    fs::remove_file(&store).expect("it was made");
    fs::rename(&hidden, &store).expect("it can be moved");
    disk.volume.drain();
    assert_eq!(first(&disk.volume)["origin_state"], "up");
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 80), 80);
}

#[test]
fn one_of_three_creators_wins() {
    let volume = Volume::new(1, 1);
    let url = PathBuf::from(format!("file://{}", volume.place.file("race").display()));
    let create = || flashfront().args(["object", "create"]).arg(&url).args(["--size", "1GiB"]).output();
    let ended: Vec<bool> = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..3).map(|_| scope.spawn(create)).collect();
        let ended = |it: std::thread::ScopedJoinHandle<'_, std::io::Result<std::process::Output>>| {
            it.join().expect("no panic").expect("it ends").status.success()
        };
        creators.into_iter().map(ended).collect()
    });
    assert_eq!(ended.iter().filter(|it| **it).count(), 1, "{ended:?}");
}

/// Without its key an encrypted volume is neither served nor read, and its writer goes on.
#[test]
fn an_encrypted_volume_wants_its_key() {
    let mut disk = Disk::new(Store::sealed());
    disk.start();
    let line = b"nobody else may read this line! ".repeat(BLOCK as usize / 32);
    disk.volume.connect().write_at(BLOCK, &line, true).expect("the volume takes writes");
    disk.volume.drain();
    let wrong = Store::sealed();
    let Store::Sealed(keys) = &wrong else { unreachable!() };
    fs::write(keys.path(), "0b".repeat(32)).expect("it can be written");
    for store in [&wrong, &Store::Folder] {
        for verb in ["info", "gc", "export"] {
            let mut command = flashfront();
            command.args(["object", verb]).arg(&disk.volume.origin);
            match verb {
                "gc" => _ = command.arg("--force"),
                "export" => _ = command.arg(disk.volume.place.file("stolen")),
                _ => {}
            }
            let ended = output(store.known(&mut command));
            let said = show(&ended);
            assert!(!ended.status.success() && said.contains("which is not given"), "{verb}: {said}");
        }
        let mut other = Volume::new(64, 1);
        other.origin.clone_from(&disk.volume.origin);
        let said = show(&output(store.known(&mut other.format())));
        assert!(said.contains("which is not given"), "{said}");
    }
    assert_eq!(first(&disk.volume)["fenced"], false);
    disk.volume.stop();
    let mut left = vec![disk.volume.place.file("store")];
    let mut objects = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).expect("a folder").map(|it| it.expect("an entry").path()));
        } else {
            let bytes = fs::read(&path).expect("a file");
            assert!(!bytes.windows(16).any(|it| it == &line[..16]), "{}", path.display());
            objects += 1;
        }
    }
    assert!(objects > 3);
    assert!(disk.content()[BLOCK as usize..2 * BLOCK as usize] == line);
}
