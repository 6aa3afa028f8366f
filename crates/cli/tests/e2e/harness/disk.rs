// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in an object store with a cache on this host, and writes that tell how many of them a
//! content has.

use std::fs;
use std::process::Command;

use flashfront_serve::frontend::nbd::Client;
use serde_json::Value;

use super::{MIB, Random, Store, Volume, flashfront, must, output, show};

/// Bytes of the volume.
pub(crate) const SIZE: u64 = 16 * MIB;
/// Bytes of a write.
pub(crate) const BLOCK: u64 = 4096;
/// Blocks that are written again and again.
const PLACES: u64 = 64;

/// How a volume is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) is_compressed: bool,
    pub(crate) is_encrypted: bool,
}

impl Form {
    pub(crate) const PLAIN: Self = Self { is_compressed: false, is_encrypted: false };
    pub(crate) const BOTH: Self = Self { is_compressed: true, is_encrypted: true };
    pub(crate) const ALL: [Self; 4] = [
        Self::PLAIN,
        Self { is_compressed: true, is_encrypted: false },
        Self { is_compressed: false, is_encrypted: true },
        Self::BOTH,
    ];

    fn options(self) -> impl Iterator<Item = &'static str> {
        let options = [(self.is_compressed, "--compress"), (self.is_encrypted, "--encrypt")];
        options.into_iter().filter_map(|(is, option)| is.then_some(option))
    }
}

/// A volume in a store, with a cache on this host.
pub(crate) struct Disk {
    pub(crate) volume: Volume,
    pub(crate) store: Store,
    /// The file with its key, if the volume is encrypted.
    pub(crate) keys: Option<tempfile::NamedTempFile>,
}

impl Disk {
    pub(crate) fn new(store: Store, form: Form) -> Self {
        Self::with(store, form, &["--size", "16MiB"])
    }

    /// A disk that is made by these options of `object create`.
    pub(crate) fn with(store: Store, form: Form, options: &[&'static str]) -> Self {
        let mut volume = Volume::new(64, 1);
        volume.origin = store.url(&volume.place, "store").into();
        let keys = form.is_encrypted.then(|| key_file(10));
        let disk = Self { volume, store, keys };
        let options: Vec<&str> = options.iter().copied().chain(form.options()).collect();
        disk.object("create", &options);
        disk.format(&disk.volume);
        disk
    }

    /// Lets a program find the store and the key.
    pub(crate) fn known<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some(keys) = &self.keys {
            command.env("FLASHFRONT_OBJECT_KEYS", keys.path());
        }
        self.store.known(command)
    }

    /// `flashfront object VERB` of the volume, to be run.
    pub(crate) fn object_command(&self, verb: &str, more: &[&str]) -> Command {
        let mut command = flashfront();
        command.args(["object", verb]).arg(&self.volume.origin).args(more);
        self.known(&mut command);
        command
    }

    #[track_caller]
    pub(crate) fn object(&self, verb: &str, more: &[&str]) -> String {
        must(&mut self.object_command(verb, more))
    }

    #[track_caller]
    pub(crate) fn format(&self, volume: &Volume) {
        must(self.known(&mut volume.format()));
    }

    #[track_caller]
    pub(crate) fn start(&mut self) {
        let mut serve = self.volume.serve();
        self.known(&mut serve);
        self.volume.start_by(&mut serve);
    }

    /// A second cache of the volume, which is formatted and not served.
    pub(crate) fn other_cache(&self) -> Volume {
        let mut other = Volume::new(64, 1);
        other.origin.clone_from(&self.volume.origin);
        self.format(&other);
        other
    }

    /// What a start says that is refused, as another writer has the volume open.
    #[track_caller]
    pub(crate) fn refused(&self, serve: &mut Command) -> String {
        let said = show(&output(self.known(serve)));
        assert!(said.contains("exit status: 1") && said.contains("has the volume open to write"), "{said}");
        said
    }

    /// Another host, as far as the store can tell: a cache of its own takes the volume over. Nobody
    /// does that unasked.
    pub(crate) fn other_host(&self) -> Volume {
        let mut other = self.other_cache();
        self.refused(&mut other.serve());
        let mut serve = other.serve();
        other.start_by(self.known(serve.arg("--take-over")));
        other
    }

    /// What the store alone has, and that it is sound.
    #[track_caller]
    pub(crate) fn content(&self) -> Vec<u8> {
        let checked: Value = serde_json::from_str(&self.object("check", &["--data", "--json"])).expect("JSON");
        assert_eq!(checked["ok"], true, "{checked}");
        self.exported("")
    }

    /// The content of the volume, or of `@SNAPSHOT`.
    #[track_caller]
    pub(crate) fn exported(&self, snapshot: &str) -> Vec<u8> {
        let file = self.volume.place.file("exported");
        fs::remove_file(&file).ok();
        let mut command = flashfront();
        let url = format!("{}{snapshot}", self.volume.origin.display());
        must(self.known(command.args(["object", "export", &url]).arg(&file)));
        fs::read(file).expect("it was written")
    }
}

/// A file with a key of 32 equal bytes.
pub(crate) fn key_file(byte: u8) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(file.path(), key(byte)).expect("it can be written");
    file
}

/// The key of 32 equal bytes, in hexadecimal digits.
pub(crate) fn key(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

/// The first volume of `status`.
#[track_caller]
pub(crate) fn first(volume: &Volume) -> Value {
    volume.status()["volumes"][0].clone()
}

#[track_caller]
pub(crate) fn wait_for(volume: &Volume, is: impl Fn(&Value) -> bool) {
    while !is(&first(volume)) {
        std::thread::sleep(std::time::Duration::from_millis(20)); // pacing: a poll of the daemon
    }
}

/// The place of the n-th write. Places are written again and again.
pub(crate) fn place(nth: u64) -> u64 {
    nth * 7 % PLACES * BLOCK
}

pub(crate) fn payload(nth: u64) -> Vec<u8> {
    Random::new(nth).bytes(BLOCK as usize)
}

/// Writes so many blocks, each with a FLUSH of its own.
#[track_caller]
pub(crate) fn write(volume: &Volume, numbers: std::ops::Range<u64>) {
    write_by(&mut volume.connect(), numbers);
}

/// Writes so many blocks by a client that is connected.
#[track_caller]
pub(crate) fn write_by(client: &mut Client, numbers: std::ops::Range<u64>) {
    for nth in numbers {
        client.write_at(place(nth), &payload(nth), false).expect("the volume takes writes");
        client.flush().expect("the cache device is well");
    }
}

/// How many writes the content has: exactly the first ones, and none after them.
#[track_caller]
pub(crate) fn prefix(content: &[u8], all: u64) -> u64 {
    let written = &content[..(PLACES * BLOCK) as usize];
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
