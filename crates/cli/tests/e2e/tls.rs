// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD inside TLS, to clients whose TLS is another one's: libnbd's and qemu's is GnuTLS.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::harness::{Daemon, MIB, Random, Volume, assert_same, must, output, show, skip_without, tool};
use crate::refusal::{Table, refused};

/// The folder of a server, of a client with a certificate, and of one that only knows the
/// authority.
pub(crate) struct Pki {
    pub(crate) server: PathBuf,
    pub(crate) client: PathBuf,
    anybody: PathBuf,
}

/// Makes an authority, and what it certifies, in folders at `place` whose names begin with `name`.
pub(crate) fn pki(place: &Path, name: &str) -> Pki {
    let folder = |kind: &str| {
        let path = place.join(format!("{name}-{kind}"));
        fs::create_dir(&path).expect("the folder is ours");
        path
    };
    let made = Pki { server: folder("server"), client: folder("client"), anybody: folder("anybody") };
    let key = || KeyPair::generate().expect("a key can be made");
    let params = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        CertificateParams::new(names).expect("these names are in order")
    };
    let mut authority = params(&[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = key();
    let root = authority.self_signed(&authority_key).expect("it can sign").pem();
    let issuer = Issuer::new(authority, authority_key);
    for (dir, file, usage) in [
        (&made.server, "server", ExtendedKeyUsagePurpose::ServerAuth),
        (&made.client, "client", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let key = key();
        let mut params = params(&["localhost", "127.0.0.1"]);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &issuer).expect("it can sign");
        fs::write(dir.join(format!("{file}-cert.pem")), certificate.pem()).expect("the folder is ours");
        let path = dir.join(format!("{file}-key.pem"));
        fs::write(&path, key.serialize_pem()).expect("the folder is ours");
        fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the file is ours");
    }
    for dir in [&made.server, &made.client, &made.anybody] {
        fs::write(dir.join("ca-cert.pem"), &root).expect("the folder is ours");
    }
    made
}

/// A formatted volume, served inside TLS at `at`; the URI it names.
fn serve(volume: &Volume, at: &str, pki: &Pki, flags: &[&str]) -> (Daemon, String) {
    must(&mut volume.format());
    let mut command = volume.serve_nowhere();
    command.arg("--nbd").arg(at).arg("--tls-certificates").arg(&pki.server).args(flags);
    let daemon = Daemon::spawn(&mut command, &volume.log);
    let uri = daemon.ready();
    (daemon, uri)
}

/// That URI with a client's folder, as libnbd wants it.
fn with(uri: &str, folder: &Path) -> String {
    let mark = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{mark}tls-certificates={}", folder.display())
}

#[test]
fn libnbd_copies_in_and_out_inside_tls() {
    if skip_without(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    let pki = pki(volume.place.dir(), "one");
    let (daemon, uri) = serve(&volume, "tcp:localhost:0", &pki, &[]);
    assert!(uri.starts_with("nbds://localhost:"), "{uri}");
    let inside = with(&uri, &pki.anybody);
    let info = must(tool("nbdinfo").arg("--json").arg(&inside));
    let info: serde_json::Value = serde_json::from_str(&info).expect("nbdinfo speaks JSON");
    assert_eq!(info["TLS"], true, "{info}");
    assert_eq!(info["structured"], true, "{info}");

    let (image, back) = (volume.place.file("image.img"), volume.place.file("back.img"));
    fs::write(&image, Random::new(3).bytes(64 * MIB as usize)).expect("the image can be written");
    let many = ["--connections=4", "--requests=64", "--request-size=1048576"];
    must(tool("nbdcopy").args(many).arg("--flush").arg(&image).arg(&inside));
    must(tool("nbdcopy").args(many).arg(&inside).arg(&back));
    assert_same(&image, &back);

    // Without TLS nobody gets anywhere, and is told why.
    let plain = uri.replace("nbds://", "nbd://");
    let refusal = output(tool("nbdinfo").arg(&plain));
    let said = show(&refusal);
    assert!(!refusal.status.success() && said.contains("TLS"), "{said}");
    must(&mut volume.ask("drain"));
    daemon.stop();
    volume.assert_sound();
    assert_same(&image, &volume.origin);
}

#[test]
fn only_certified_clients_get_in_if_so_wanted() {
    if skip_without(&["nbdinfo"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    let (pki, other) = (pki(volume.place.dir(), "one"), pki(volume.place.dir(), "other"));
    // Beyond this machine, which TLS allows; the test stays on it.
    let (daemon, uri) = serve(&volume, "tcp:0.0.0.0:0", &pki, &["--tls-verify-peer"]);
    let uri = uri.replace("nbds://0.0.0.0:", "nbds://localhost:");
    must(tool("nbdinfo").arg(with(&uri, &pki.client)));
    // A client of another authority, which trusts ours so that it gets that far.
    fs::copy(pki.anybody.join("ca-cert.pem"), other.client.join("ca-cert.pem")).expect("the files are ours");
    for stranger in [&pki.anybody, &other.client] {
        let refusal = output(tool("nbdinfo").arg(with(&uri, stranger)));
        assert!(!refusal.status.success(), "{}: {}", stranger.display(), show(&refusal));
    }
    // And a client that doesn't trust us leaves.
    let refusal = output(tool("nbdinfo").arg(with(&uri, &other.anybody)));
    assert!(!refusal.status.success(), "{}", show(&refusal));
    must(tool("nbdinfo").arg(with(&uri, &pki.client)));
    // And the operator reads what to do about each.
    let log = daemon.stderr();
    for words in [
        "it showed no certificate, and --tls-verify-peer wants one",
        // The two authorities of this test have the same name.
        "its authority has the name of the one in ca-cert.pem and another key",
    ] {
        assert!(log.contains("does not get in") && log.contains(words), "{words}: {log}");
    }
    daemon.stop();
}

/// After a renewal: by SIGHUP, without a restart. What can't be used changes nothing.
#[test]
fn renewed_certificates_are_used_after_a_reload() {
    if skip_without(&["nbdinfo"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    let (old, new) = (pki(volume.place.dir(), "old"), pki(volume.place.dir(), "new"));
    let (daemon, uri) = serve(&volume, "tcp:localhost:0", &old, &[]);
    must(tool("nbdinfo").arg(with(&uri, &old.anybody)));
    let served = |folder: &Path| output(tool("nbdinfo").arg(with(&uri, folder))).status.success();
    for file in ["server-cert.pem", "server-key.pem"] {
        fs::copy(new.server.join(file), old.server.join(file)).expect("the files are ours");
    }
    assert!(served(&old.anybody) && !served(&new.anybody), "they are read when that is asked for");
    daemon.signal(Signal::HUP);
    daemon.says("the certificates in");
    assert!(!served(&old.anybody) && served(&new.anybody));
    fs::write(old.server.join("server-cert.pem"), "none").expect("the file is ours");
    daemon.signal(Signal::HUP);
    daemon.says("nothing was changed");
    assert!(served(&new.anybody), "{}", daemon.stderr());
    daemon.stop();
}

/// A folder with a key and a certificate that openssl makes of these; `None` without openssl.
fn by_openssl(place: &Path, name: &str, key: &str, x509: &[&str]) -> PathBuf {
    let dir = place.join(name);
    fs::create_dir(&dir).expect("the folder is ours");
    let openssl = |args: &[&str]| must(tool("openssl").args(args).current_dir(&dir));
    let kind = ["-newkey", key, "-nodes", "-subj", "/CN=localhost"];
    openssl(&[&["req", "-x509", "-keyout", "ca-key.pem", "-out", "ca-cert.pem", "-days", "2"][..], &kind].concat());
    openssl(&[&["req", "-keyout", "server-key.pem", "-out", "server.csr"][..], &kind].concat());
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"];
    openssl(&[&sign[..], &["-out", "server-cert.pem"], x509].concat());
    fs::set_permissions(dir.join("server-key.pem"), Permissions::from_mode(0o600)).expect("the file is ours");
    dir
}

/// Certificates as people make them: what can't be used is refused with what is expected, and a
/// line to copy.
#[test]
fn certificates_of_openssl_are_served_or_refused_with_what_to_do() {
    if skip_without(&["openssl"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let place = volume.place.dir();
    let extensions = place.join("extensions");
    fs::write(&extensions, "subjectAltName=DNS:localhost\n").expect("the place is ours");
    let extensions = extensions.to_str().expect("it is text");
    let version3 = ["-days", "2", "-extfile", extensions];
    let mut table = Table::default();
    let serve = |dir: &Path| {
        let mut command = volume.serve();
        command.arg("--tls-certificates").arg(dir);
        command
    };
    let version1 = by_openssl(place, "version1", "rsa:2048", &["-days", "2"]);
    let text = must(tool("openssl").args(["x509", "-noout", "-text", "-in"]).arg(version1.join("server-cert.pem")));
    if text.contains("Version: 1") {
        let words = ["server-cert.pem", "X.509 version 1", "version 3 is needed", "-extfile", "subjectAltName"];
        table.case("version 1", refused(&volume.place, &mut serve(&version1), &words));
    }
    for bits in ["1024", "2432", "2560"] {
        let dir = by_openssl(place, bits, &format!("rsa:{bits}"), &version3);
        let found = format!("RSA of {bits} bits");
        let words = ["server-key.pem", &found, "2048, 3072 or 4096", "-newkey rsa:3072"];
        table.case(bits, refused(&volume.place, &mut serve(&dir), &words));
    }
    table.assert();
    for (key, days, doubt) in [
        ("rsa:2048", "2", None),
        ("rsa:3072", "2", None),
        // Of yesterday; there clients judge, so it is served.
        ("rsa:2048", "-1", Some("expired on")),
    ] {
        let dir = by_openssl(place, &format!("{key}{days}"), key, &["-days", days, "-extfile", extensions]);
        let before = volume.stderr().len();
        let daemon = Daemon::spawn(&mut serve(&dir), &volume.log);
        daemon.ready();
        let log = daemon.stderr().split_off(before);
        match doubt {
            Some(words) => assert!(log.contains("server-cert.pem: this certificate") && log.contains(words), "{log}"),
            None => assert!(!log.contains("WARN"), "{log}"),
        }
        daemon.stop();
    }
}

#[test]
fn a_unix_socket_is_served_with_and_without_tls() {
    if skip_without(&["nbdinfo"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    let pki = pki(volume.place.dir(), "one");
    let (daemon, uri) = serve(&volume, &format!("unix:{}", volume.socket.display()), &pki, &[]);
    assert_eq!(uri, volume.uri());
    let plain = must(tool("nbdinfo").arg("--json").arg(&uri));
    assert!(plain.contains("\"TLS\": false"), "{plain}");
    let inside = uri.replace("nbd+unix:///", "nbds+unix://localhost/");
    let inside = must(tool("nbdinfo").arg("--json").arg(with(&inside, &pki.anybody)));
    assert!(inside.contains("\"TLS\": true"), "{inside}");
    daemon.stop();
}

#[test]
fn qemu_reads_what_it_wrote_inside_tls() {
    if skip_without(&["qemu-io"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    let pki = pki(volume.place.dir(), "one");
    let (daemon, uri) = serve(&volume, "tcp:localhost:0", &pki, &["--tls-verify-peer"]);
    let port = uri.rsplit(':').next().expect("it has a port");
    let said = must(
        tool("qemu-io")
            .arg("--object")
            .arg(format!("tls-creds-x509,id=tls,endpoint=client,dir={}", pki.client.display()))
            .args(["-c", "write -P 7 0 32M", "-c", "aio_write -P 8 1536 9728", "-c", "aio_flush", "-c", "flush"])
            .args(["-c", "read -P 7 0 1536", "-c", "read -P 8 1536 9728", "-c", "read -P 7 11264 1M"])
            .args(["-c", "read -P 0 32M 32M", "--image-opts"])
            .arg(format!("driver=nbd,host=localhost,port={port},tls-creds=tls")),
    );
    assert!(!said.contains("failed") && said.contains("33554432"), "{said}");
    daemon.stop();
    volume.assert_sound();
}

#[test]
fn what_tls_needs_is_asked_for_before_anything_else() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let mut table = Table::default();
    let mut case = |name: &str, pki: &Path, flags: &[&str], words: &[&str]| {
        let mut command = volume.serve();
        command.arg("--tls-certificates").arg(pki).args(flags);
        table.case(name, refused(&volume.place, &mut command, words));
        assert!(!volume.socket.exists() && !volume.control.exists(), "{name}: a socket was made");
    };
    case("no folder", &volume.place.file("nowhere"), &[], &["nowhere/server-cert.pem", "--tls-certificates"]);
    let keyless = pki(volume.place.dir(), "keyless").server;
    fs::remove_file(keyless.join("server-key.pem")).expect("the file is ours");
    case("no key", &keyless, &[], &["server-key.pem", "No such file"]);
    let open = pki(volume.place.dir(), "open").server;
    fs::set_permissions(open.join("server-key.pem"), Permissions::from_mode(0o644)).expect("the file is ours");
    case("a key that is no secret", &open, &[], &["server-key.pem", "chmod"]);
    let lonely = pki(volume.place.dir(), "lonely").server;
    fs::remove_file(lonely.join("ca-cert.pem")).expect("the file is ours");
    case("no authority", &lonely, &["--tls-verify-peer"], &["ca-cert.pem", "--tls-verify-peer"]);
    let swapped = pki(volume.place.dir(), "swapped").server;
    fs::copy(lonely.join("server-key.pem"), swapped.join("server-key.pem")).expect("the files are ours");
    case("another's key", &swapped, &[], &["server-key.pem", "server-cert.pem"]);
    let mut alone = volume.serve();
    alone.arg("--tls-verify-peer");
    table.case("verify without TLS", refused(&volume.place, &mut alone, &["--tls-certificates"]));
    table.assert();
}

#[test]
fn another_daemon_is_an_origin_inside_tls() {
    let below = Volume::new(32, 64);
    let pki = pki(below.place.dir(), "one");
    let (daemon, uri) = serve(&below, "tcp:localhost:0", &pki, &["--tls-verify-peer"]);
    let mut volume = Volume::new(32, 64);
    volume.origin = with(&uri, &pki.client).into();
    must(&mut volume.format());
    volume.start();
    let image = volume.place.file("image.img");
    fs::write(&image, Random::new(5).bytes(16 * MIB as usize)).expect("the image can be written");
    let mut client = volume.connect();
    for (at, part) in (0..).step_by(MIB as usize).zip(fs::read(&image).expect("it is there").chunks(MIB as usize)) {
        client.write_at(at, part, false).expect("the volume can be written");
    }
    client.disconnect().expect("the daemon is there");
    volume.drain();
    volume.stop();
    must(&mut below.ask("drain"));
    daemon.stop();
    must(tool("cmp").arg(format!("--bytes={}", 16 * MIB)).arg(&image).arg(&below.origin));

    // Nobody gets in without a certificate, or through an authority that the server has not.
    let (daemon, uri) = {
        let mut command = below.serve_nowhere();
        command.args(["--nbd", "tcp:localhost:0", "--tls-verify-peer", "--tls-certificates"]).arg(&pki.server);
        let daemon = Daemon::spawn(&mut command, &below.log);
        let uri = daemon.ready();
        (daemon, uri)
    };
    let other = self::pki(volume.place.dir(), "other");
    for (folder, said) in [(&pki.anybody, "CertificateRequired"), (&other.client, "TLS: ")] {
        volume.origin = with(&uri, folder).into();
        let told = show(&output(&mut volume.format()));
        assert!(told.contains(said) && told.contains("ca-cert.pem"), "{told}");
    }
    volume.origin = uri.replace("nbds://", "nbd://").into();
    let told = show(&output(&mut volume.format()));
    assert!(told.contains("use nbds://"), "{told}");
    daemon.stop();
}
