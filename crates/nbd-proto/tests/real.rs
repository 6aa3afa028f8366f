// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client against servers that others wrote: nbdkit and qemu-nbd. Skipped aloud where they
//! aren't installed.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flashfront_nbd_proto::blocking::{Client, ClientError};
use flashfront_nbd_proto::client::{Broken, Wanted};
use flashfront_nbd_proto::wire::Replies;

const MIB: u64 = 1 << 20;

/// A server of 8 MiB that ends with the test.
struct Server {
    child: Child,
    dir: PathBuf,
}

impl Server {
    /// Starts a program; `None`, said aloud, if it is not there.
    fn start(name: &str, args: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!(
            "nbd-proto-{name}-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&dir).expect("a folder for the socket");
        let child = Command::new(name)
            .args(args(&dir))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self { child, dir }),
            Err(error) => {
                println!("skipped: {name}: {error}");
                std::fs::remove_dir_all(&dir).expect("the folder is ours");
                None
            }
        }
    }

    /// Makes the image a hole again.
    fn blank(&self) {
        let image = std::fs::File::create(self.dir.join("image"));
        image.and_then(|file| file.set_len(8 * MIB)).expect("the image is ours");
    }

    /// Connects once the server listens.
    fn connect(&mut self) -> UnixStream {
        loop {
            if let Ok(stream) = UnixStream::connect(self.dir.join("socket")) {
                return stream;
            }
            let ended = self.child.try_wait().expect("the child is ours");
            assert_eq!(ended, None, "the server has ended");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // They may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Writes, reads, zeroes and trims, and asks what is a hole.
fn use_all(stream: UnixStream, export: &str, replies: Replies) {
    let mut client = Client::open_with(stream, Wanted { replies, ..Wanted::all_of(export) }).expect("a server");
    assert_eq!(client.info().size_bytes, 8 * MIB);
    assert_eq!(client.protocol().replies(), replies);
    let written: Vec<u8> = (0..MIB).map(|at| (at % 251) as u8 + 1).collect();
    client.write_at(MIB, &written, false).expect("a write");
    client.write_zeroes(MIB + 64 * 1024, 64 * 1024).expect("zeroes");
    client.trim(4 * MIB, MIB).expect("a trim");
    client.flush().expect("a flush");
    let mut read = vec![0xee; 2 * MIB as usize];
    client.read_at(MIB / 2, &mut read).expect("a read");
    let mut expected = vec![0; 2 * MIB as usize];
    expected[MIB as usize / 2..][..MIB as usize].copy_from_slice(&written);
    expected[MIB as usize / 2 + 64 * 1024..][..64 * 1024].fill(0);
    assert!(read == expected, "{replies:?}: not what was written");
    if !client.protocol().contexts().is_empty() {
        let extents = client.extents(0, 8 * MIB).expect("extents");
        assert!(extents[0].is_zero() && extents[0].bytes <= MIB, "{extents:?}");
        assert!(extents.len() > 1 && !extents[1].is_zero(), "{extents:?}");
    }
    client.disconnect().expect("the server hangs up");
}

#[test]
fn nbdkit_is_understood() {
    let args = |dir: &Path| {
        let socket = dir.join("socket").display().to_string();
        ["--foreground", "--unix", &socket, "memory", "8M"].map(str::to_owned).to_vec()
    };
    let Some(mut server) = Server::start("nbdkit", args) else { return };
    use_all(server.connect(), "", Replies::Simple);
    use_all(server.connect(), "", Replies::Structured);
}

/// nbdkit can play a server of old: without options, so without GO, with and without the zeroes.
#[test]
fn a_server_of_old_is_understood() {
    for mask in ["0", "2"] {
        let args = |dir: &Path| {
            let socket = dir.join("socket").display().to_string();
            let mask = format!("--mask-handshake={mask}");
            ["--foreground", "--unix", &socket, &mask, "memory", "8M"].map(str::to_owned).to_vec()
        };
        let Some(mut server) = Server::start("nbdkit", args) else { return };
        let client = Client::open_with(server.connect(), Wanted::all_of("any")).expect("a server");
        assert_eq!(client.protocol().replies(), Replies::Simple);
        client.disconnect().expect("the server hangs up");
        use_all(server.connect(), "any", Replies::Simple);
    }
}

#[test]
fn qemu_nbd_is_understood() {
    let args = |dir: &Path| {
        let image = dir.join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(8 * MIB)).expect("a sparse file");
        let (socket, image) = (dir.join("socket").display().to_string(), image.display().to_string());
        [
            "--socket",
            &socket,
            "--persistent",
            "--shared=4",
            "--discard=unmap",
            "--format=raw",
            "--export-name=it",
            &image,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let Some(mut server) = Server::start("qemu-nbd", args) else { return };
    let refused = Client::open(server.connect(), "another", true).map(drop);
    assert!(matches!(refused, Err(ClientError::Broken(Broken::Refused { .. }))), "{refused:?}");
    let client = Client::open_with(server.connect(), Wanted::all_of("it")).expect("a server");
    // qemu knows extended headers since 8.2.
    let most = client.protocol().replies();
    assert_ne!(most, Replies::Simple);
    assert_eq!(client.protocol().contexts().len(), 1);
    client.disconnect().expect("the server hangs up");
    for replies in [Replies::Simple, Replies::Structured, most] {
        use_all(server.connect(), "it", replies);
        server.blank();
    }
}
