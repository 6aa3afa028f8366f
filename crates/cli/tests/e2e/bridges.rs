// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bridges: storage that speaks no NBD, behind a server that does. Ceph needs more than a test may
//! start; the book's page on bridges tells how it was tried.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::harness::{MIB, Random, Volume, assert_same, free_port, is_root, must, skip, skip_without, tool};
use crate::servers::Server;
use crate::tls::pki;

const IMAGE_BYTES: usize = 24 * MIB as usize;

/// Serves some bytes by HTTPS, by ranges, as a web server does with a file.
fn web_server(bytes: Arc<Vec<u8>>, certified: &Path) -> u16 {
    let chain = CertificateDer::from_pem_file(certified.join("server-cert.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(certified.join("server-key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("ring has them").with_no_client_auth().with_single_cert(vec![chain], key);
    let config = Arc::new(config.expect("the key is the certificate's"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (bytes, tls) = (Arc::clone(&bytes), ServerConnection::new(Arc::clone(&config)).expect("in order"));
            // A client that hangs up ends its thread.
            std::thread::spawn(move || answer_requests(StreamOwned::new(tls, stream), &bytes).ok());
        }
    });
    port
}

fn answer_requests(stream: impl Read + Write, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut request, mut range) = (String::new(), None);
        if stream.read_line(&mut request)? == 0 {
            return Ok(());
        }
        for line in stream.by_ref().lines() {
            let line = line?.to_lowercase();
            if line.is_empty() {
                break;
            }
            range = line.strip_prefix("range: bytes=").map(str::to_owned).or(range);
        }
        let numbers = range.as_deref().and_then(|it| it.split_once('-'));
        let numbers = numbers.and_then(|(from, to)| Some((from.parse().ok()?, to.parse::<usize>().ok()?)));
        let (status, part) = match numbers {
            // A range may end behind the file.
            Some((from, to)) => ("206 Partial Content", &bytes[from..bytes.len().min(to + 1)]),
            None => ("200 OK", bytes),
        };
        let length = part.len();
        let head = format!("HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\nContent-Length: {length}\r\n\r\n");
        let part = if request.starts_with("GET") { part } else { &[] };
        // In one piece: a client may answer the first of two only after a while.
        stream.get_mut().write_all(&[head.as_bytes(), part].concat())?;
        stream.get_mut().flush()?;
    }
}

/// Reads all, writes here and there, reads again, and does both with the cache gone.
fn use_volume(volume: &mut Volume, expected: &mut [u8]) {
    must(volume.format().args(["--mode", "writeback"]));
    for round in 0..2 {
        volume.start();
        let mut client = volume.connect();
        let mut seen = vec![0; expected.len()];
        client.read_at(0, &mut seen).expect("the volume can be read");
        assert!(seen == expected, "round {round}");
        let mut random = Random::new(round);
        for _ in 0..40 {
            let at = random.below(expected.len() as u64 / 4096 - 4) as usize * 4096;
            let data = random.bytes(4 * 4096);
            client.write_at(at as u64, &data, false).expect("the volume can be written");
            expected[at..][..data.len()].copy_from_slice(&data);
        }
        client.flush().expect("the volume can be flushed");
        client.read_at(0, &mut seen).expect("the volume can be read");
        assert!(seen == expected, "round {round}");
        volume.drain();
        volume.stop();
    }
    volume.assert_sound();
}

/// An image on a web server takes no writes. A qcow2 image above it does.
#[test]
fn an_image_of_a_web_server_is_cached_and_keeps_its_writes_in_an_overlay() {
    if skip_without(&["nbdkit", "qemu-img", "qemu-storage-daemon"]) {
        return;
    }
    let image = Arc::new(Random::new(1).bytes(IMAGE_BYTES));
    let mut volume = Volume::new(32, 1);
    let certified = pki(&volume.place.file("."), "web");
    let url = format!("url=https://127.0.0.1:{}/disk.img", web_server(Arc::clone(&image), &certified.server));
    let authority = format!("cainfo={}", certified.client.join("ca-cert.pem").display());
    let (below, above) = (volume.place.socket("web"), volume.place.socket("overlay"));
    let at = below.clone();
    let mut web = Server::new(below.clone(), move || {
        let mut command = tool("nbdkit");
        command.args(["--foreground", "--readonly", "--unix"]).arg(&at).arg("curl").args([&url, &authority]);
        command
    });
    web.start();
    let overlay = volume.place.file("overlay.qcow2");
    let backing = format!("nbd+unix:///?socket={}", below.display());
    must(tool("qemu-img").args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &backing]).arg(&overlay));
    let (at, of) = (above.clone(), overlay.clone());
    let mut server = Server::new(above.clone(), move || storage_daemon(&at, &of));
    server.start();
    volume.origin = server.uri();
    let mut expected = image.to_vec();
    use_volume(&mut volume, &mut expected);
    server.kill9();
    let (held, wanted) = (volume.place.file("held.img"), volume.place.file("wanted.img"));
    must(tool("qemu-img").args(["convert", "-O", "raw"]).arg(&overlay).arg(&held));
    fs::write(&wanted, &expected).expect("the place is ours");
    assert_same(&held, &wanted);
}

/// qemu's storage daemon with a qcow2 image, and whatever lies below the image.
pub(crate) fn storage_daemon(socket: &Path, qcow2: &Path) -> Command {
    let mut command = tool("qemu-storage-daemon");
    command.arg("--blockdev").arg(format!("file,node-name=file,filename={}", qcow2.display()));
    command.args(["--blockdev", "qcow2,node-name=disk,file=file,discard=unmap"]);
    command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={},max-connections=8", socket.display()));
    command.args(["--export", "nbd,id=it,node-name=disk,name=,writable=on"]);
    command
}

/// A server for one test alone, which ends with it.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }
}

/// Listens at a free port, with an sshd of its own for each connection, as inetd does. A service of
/// the machine is neither needed nor touched.
fn ssh_server(config: PathBuf, log: PathBuf) -> u16 {
    // As root sshd wants this folder.
    fs::create_dir_all("/run/sshd").ok();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let [from, to] = [stream.try_clone(), Ok(stream)].map(|it| OwnedFd::from(it.expect("a socket")));
            let mut sshd = tool("/usr/sbin/sshd");
            sshd.arg("-i").arg("-f").arg(&config).arg("-E").arg(&log).stdin(from).stdout(to);
            let mut sshd = sshd.spawn().expect("sshd is there");
            // An sshd started by -i serves one connection, and ends with that.
            std::thread::spawn(move || sshd.wait());
        }
    });
    port
}

/// A file of another machine, by ssh: what is needed there is sshd.
#[test]
fn a_file_by_ssh_is_cached() {
    if skip_without(&["nbdkit", "sshd", "ssh-keygen"]) {
        return;
    }
    let mut volume = Volume::new(32, 1);
    let file = |name: &str| volume.place.file(name);
    for key in ["host", "user"] {
        must(tool("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file(key)));
    }
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nSubsystem sftp internal-sftp\n",
        file("host").display(),
        file("user.pub").display()
    );
    fs::write(file("sshd_config"), config).expect("the place is ours");
    let port = ssh_server(file("sshd_config"), file("sshd.log"));
    let public = fs::read_to_string(file("host.pub")).expect("ssh-keygen has made it");
    fs::write(file("known"), format!("[127.0.0.1]:{port} {public}")).expect("the place is ours");
    let image = volume.place.sparse("there.img", IMAGE_BYTES as u64);
    let mut expected = Random::new(2).bytes(IMAGE_BYTES);
    fs::File::options().write(true).open(&image).and_then(|it| it.write_all_at(&expected, 0)).expect("it is ours");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let at = volume.place.socket("ssh");
    let parameters = [
        "host=127.0.0.1".to_owned(),
        format!("port={port}"),
        format!("identity={}", file("user").display()),
        format!("known-hosts={}", file("known").display()),
        format!("path={}", image.display()),
    ];
    let mut server = Server::new(at.clone(), move || {
        let mut command = tool("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&at).arg("ssh").args(&parameters);
        command
    });
    server.start();
    volume.origin = server.uri();
    use_volume(&mut volume, &mut expected);
    let mut held = Vec::new();
    fs::File::open(&image).and_then(|mut it| it.read_to_end(&mut held)).expect("it is ours");
    assert!(held == expected);
}

/// A disk behind iSCSI: a target of tgt, and qemu's initiator.
#[test]
fn a_disk_behind_iscsi_is_cached() {
    if skip_without(&["tgtd", "tgtadm", "qemu-storage-daemon"]) {
        return;
    }
    if !is_root() {
        skip("tgtd listens for orders in /var/run: it wants root");
        return;
    }
    let mut volume = Volume::new(32, 1);
    let image = volume.place.sparse("there.img", IMAGE_BYTES as u64);
    let mut expected = Random::new(3).bytes(IMAGE_BYTES);
    fs::File::options().write(true).open(&image).and_then(|it| it.write_all_at(&expected, 0)).expect("it is ours");
    let port = free_port();
    // Orders go by a socket whose name has this number, of 15 bits.
    let number = (port % 32_000 + 1).to_string();
    let mut target = tool("tgtd");
    target.args(["-f", "-C", &number, "--iscsi", &format!("portal=127.0.0.1:{port}")]);
    let spawned = target.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut target = Ours(spawned.expect("tgtd is there"));
    let order = |op: &[&str]| {
        let mut command = tool("tgtadm");
        command.args(["-C", &number, "--lld", "iscsi"]).args(op).stderr(Stdio::null());
        command
    };
    let name = "iqn.2026-11.example:disk";
    let make = ["--op", "new", "--mode", "target", "--tid", "1", "-T", name];
    while !order(&make).status().expect("a program").success() {
        assert_eq!(target.0.try_wait().expect("the child is ours"), None, "tgtd has ended");
        std::thread::yield_now();
    }
    must(order(&["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b"]).arg(&image));
    must(&mut order(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"]));
    let at = volume.place.socket("iscsi");
    let disk = format!("iscsi,node-name=disk,transport=tcp,portal=127.0.0.1:{port},target={name},lun=1");
    // The driver is a package of its own.
    let mut tried = tool("qemu-storage-daemon");
    tried.args(["--blockdev", &disk, "--daemonize", "--pidfile"]).arg(volume.place.file("tried.pid"));
    let tried = tried.output().expect("a program");
    let said = String::from_utf8_lossy(&tried.stderr);
    if said.contains("Unknown driver") || said.contains("Parameter 'driver' does not accept value") {
        skip("qemu-block-extra not installed");
        return;
    }
    assert!(tried.status.success(), "{said}");
    let tried = fs::read_to_string(volume.place.file("tried.pid")).expect("it has started");
    must(tool("kill").arg(tried.trim()));
    let socket = at.clone();
    let mut server = Server::new(at, move || {
        let mut command = tool("qemu-storage-daemon");
        command.args(["--blockdev", &disk, "--nbd-server"]);
        command.arg(format!("addr.type=unix,addr.path={},max-connections=8", socket.display()));
        command.args(["--export", "nbd,id=it,node-name=disk,name=,writable=on"]);
        command
    });
    server.start();
    volume.origin = server.uri();
    use_volume(&mut volume, &mut expected);
    server.kill9();
    assert!(fs::read(&image).expect("it is ours") == expected);
}
