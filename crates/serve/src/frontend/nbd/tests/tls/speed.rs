// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures TLS: nbdcopy from the disk in RAM with it and without, and from `nbdkit memory`.
//!
//! It prints figures and judges nothing:
//! `cargo test --release -p flashfront-serve tls::speed -- --ignored --nocapture`

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::super::super::{Listen, NbdOptions};
use super::super::ram::Ram;
use super::super::server::{Order, Server};
use super::super::tools::{have, run};
use super::client::enter;
use super::pki::Pki;

const MIB: u64 = 512;

/// MiB/s of a copy; the best of three.
fn copy(from: &str, to: &str) -> f64 {
    let once = |_| {
        let begin = Instant::now();
        let args = ["--no-extents", "--connections=1", "--requests=32", "--request-size=262144"];
        run(Command::new("nbdcopy").args(args).arg("--destination-is-zero").args([from, to]));
        MIB as f64 / begin.elapsed().as_secs_f64()
    };
    (0..3).map(once).fold(0.0, f64::max)
}

struct Nbdkit(Child);

impl Nbdkit {
    fn start(port: &str, pki: &Pki, tls: &str) -> Self {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "--ipaddr=127.0.0.1", "--port", port, "--tls", tls, "--tls-certificates"]).arg(pki.dir());
        let child = command.args(["memory", &format!("size={MIB}m")]).spawn().unwrap();
        let begin = Instant::now();
        while std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "nbdkit did not start");
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn report(name: &str, uri: &str, image: &Path) {
    let write = copy(image.to_str().unwrap(), uri);
    println!("{name:24} {write:12.0} {:12.0}", copy(uri, "null:"));
}

#[test]
#[ignore = "a measurement of half a minute, no test"]
fn with_tls_and_without() {
    if !have("nbdcopy") || !have("nbdkit") {
        return;
    }
    let pki = Pki::new();
    let image = pki.file("image");
    std::fs::write(&image, vec![0xa5; (MIB << 20) as usize]).unwrap();
    let inside = |port: &str| format!("nbds://localhost:{port}/?tls-certificates={}", pki.dir().display());
    let at = Listen::parse("tcp:localhost:0").unwrap();
    let serve = |options| {
        let server =
            Server::start_at(Ram::new(MIB << 20, 512), Order::Fifo, &at, options, tempfile::tempdir().unwrap());
        let Listen::Tcp { port, .. } = &server.at else { panic!("not TCP") };
        let port = port.to_string();
        (server, port)
    };
    println!("MiB/s                          write         read");
    let (server, _) = serve(NbdOptions::default());
    report("flashfront", &server.uri, &image);
    server.stop();
    let (server, port) = serve(pki.options(false));
    report("flashfront, TLS", &inside(&port), &image);
    let (begin, count, config) = (Instant::now(), 500, pki.any_client());
    for _ in 0..count {
        enter(&server.at, &config).unwrap();
    }
    let handshake = begin.elapsed() / count;
    server.stop();
    let nbdkit = Nbdkit::start("10819", &pki, "off");
    report("nbdkit memory", "nbd://localhost:10819", &image);
    drop(nbdkit);
    let nbdkit = Nbdkit::start("10819", &pki, "require");
    report("nbdkit memory, TLS", &inside("10819"), &image);
    drop(nbdkit);
    println!("a handshake, both ends (ECDSA P-256): {handshake:?}");
}
