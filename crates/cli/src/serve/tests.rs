// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of flags and files of `serve`.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    serve: Serve,
}

fn config(line: &[&str]) -> anyhow::Result<Config> {
    Line::try_parse_from([&["serve"], line].concat())?.serve.into_config()
}

const LEAST: [&str; 6] = ["--cache", "/c", "--origin", "/o", "--nbd", "unix:/s"];

#[test]
fn flags_alone_are_enough() {
    let config = config(&LEAST).unwrap();
    assert_eq!(config.volumes, [Volume::new("data", "/o".into())]);
    assert_eq!(config.listeners.len(), 1);
}

#[test]
fn the_last_words_claim_no_more_than_is_known() {
    let alone = Left::default();
    let clients = vec![("file:///run/disk/data".to_owned(), 1)];
    let watched = Left { clients, ..Left::default() };
    assert!(stopped(0, &alone).contains("the origin is complete"));
    let said = stopped(0, &watched);
    assert!(!said.contains("complete") && said.contains("1 at file:///run/disk/data"), "{said}");
    assert!(stopped(256, &alone).contains("1.00 MiB of dirty data stay in the cache"));
    assert!(stopped(256, &watched).contains("not known here"));
    let full = Left { refused: vec![("data".to_owned(), flashfront_engine::DeviceError::NoSpace)], ..watched };
    let said = refused(256, &full);
    assert!(
        said.contains("1.00 MiB") && said.contains("volume data: no space left") && said.contains("destage"),
        "{said}"
    );
}

#[test]
fn front_ends_may_be_mixed() {
    let line = [&LEAST[..], &["--nbd", "tcp:127.0.0.1:0", "--fuse", "/run/disk", "--ublk", "4"]].concat();
    let listeners = config(&line).unwrap().listeners;
    assert_eq!(listeners.len(), 4);
    assert_eq!(listeners[2..], [Listener::Fuse("/run/disk".into()), Listener::Ublk(4)]);
    assert!(config(&[&LEAST[..4], &["--fuse", "/run/disk"]].concat()).is_ok());
}

#[test]
fn flags_override_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.toml");
    std::fs::write(&path, config::REFERENCE).unwrap();
    let file = path.to_str().unwrap();
    let plain = config(&["--config", file]).unwrap();
    assert_eq!(plain.cache.to_str(), Some("/dev/disk/by-id/nvme-fast"));
    assert_eq!(plain.volumes[0].mode, Some(Mode::Writeback));
    let line = ["--config", file, "--cache", "/c", "--mode", "writearound", "--dirty-limit", "1 GiB"];
    let changed = config(&line).unwrap();
    assert_eq!(changed.cache.to_str(), Some("/c"));
    assert_eq!(changed.volumes[0].mode, Some(Mode::Writearound));
    assert_eq!(changed.policy.dirty_limit, DirtyLimit::Size(Size(1 << 30)));
    assert_eq!(changed.volumes[0].origin, plain.volumes[0].origin);
}

#[test]
fn what_cannot_work_is_refused() {
    let message = |line: &[&str]| config(line).unwrap_err().to_string();
    assert!(message(&LEAST[..4]).contains("nowhere to listen"));
    assert!(message(&["--cache", "/c", "--origin", "/c", "--nbd", "unix:/s"]).contains("two devices"));
    let open = ["--cache", "/c", "--origin", "/o", "--nbd", "tcp:0.0.0.0:1"];
    assert!(message(&open).contains("--insecure"));
    assert!(message(&open).contains("--tls-certificates"));
    config(&[&open[..], &["--insecure"]].concat()).unwrap();
    let tls = config(&[&open[..], &["--tls-certificates", "/pki", "--tls-verify-peer"]].concat()).unwrap().tls;
    assert_eq!(tls, Some(TlsFiles { certificates: "/pki".into(), verify_peer: true }));
    assert!(message(&[&LEAST[..], &["--tls-verify-peer"]].concat()).contains("--tls-certificates"));
    assert!(message(&["--config", "/nowhere/f.toml"]).contains("/nowhere/f.toml"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.toml");
    std::fs::write(&path, "[[volume]]\norigin = \"/o\"\n").unwrap();
    let file = ["--config", path.to_str().unwrap(), "--nbd", "unix:/s"];
    assert!(message(&file).contains("--cache PATH"), "{}", message(&file));
    config(&[&file[..], &["--cache", "/c"]].concat()).unwrap();
    let alone = ["--without-cache", "--origin", "/o", "--nbd", "unix:/s"];
    let said = message(&alone);
    assert!(said.contains("--accept-missing-dirty-data") && said.contains("lacks the newest writes"), "{said}");
    let alone = [&alone[..], &["--accept-missing-dirty-data"]].concat();
    assert!(config(&alone).unwrap().without_cache);
    assert!(message(&[&alone[..], &["--mirror", "/m"]].concat()).contains("cannot be used with"));
}
