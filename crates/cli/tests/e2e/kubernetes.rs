// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manifests of `contrib/kubernetes`: Kubernetes' own schemas take them, and this program takes
//! what they say to it. No cluster is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{Random, Volume, flashfront, must, output, show, skip_without, tool};

const CHECKER: &str = "kubernetes-validate";

fn manifest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/kubernetes").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(manifest(name)).expect("it is in the tree")
}

/// Compares with the schemas of the newest Kubernetes that the checker knows; unknown keys are
/// mistakes, too.
fn checked(path: &Path) -> Output {
    output(tool(CHECKER).arg("--strict").arg(path))
}

/// The schemas are the checker's, of PyPI; `./test` installs it.
#[test]
fn schemas_take_the_manifests_and_no_mistake() {
    if skip_without(&[CHECKER]) {
        return;
    }
    let place = crate::harness::Place::new();
    for (name, resources, mistakes) in [
        (
            "daemonset.yaml",
            ["configmap/flashfront", "daemonset/flashfront"].as_slice(),
            [
                ("privileged: true", "privileged: 1", "securityContext.privileged"),
                ("readOnly: true", "readonly: true", "readonly"),
                ("  selector:", "  selectors:", "selector"),
            ],
        ),
        (
            "raw-block.yaml",
            ["statefulset/cached-volume"].as_slice(),
            [
                ("replicas: 1", "replicas: one", "spec.replicas"),
                ("devicePath: /dev/volume", "devicepath: /dev/volume", "devicePath"),
                ("serviceName:", "servicename:", "servicename"),
            ],
        ),
    ] {
        let whole = checked(&manifest(name));
        assert!(whole.status.success(), "{name}: {}", show(&whole));
        let said = show(&whole);
        for resource in resources {
            assert!(said.contains(&format!("passed for resource {resource} ")), "{resource} was not looked at: {said}");
        }
        for (right, wrong, named) in mistakes {
            let spoilt = place.file(name);
            let text = text(name);
            assert!(text.contains(right), "{name} has no {right:?} any more");
            fs::write(&spoilt, text.replacen(right, wrong, 1)).expect("the place is ours");
            let found = checked(&spoilt);
            assert!(!found.status.success(), "{name}: {wrong:?} was not found: {}", show(&found));
            let said = show(&found);
            assert!(said.contains(named), "{name}: {wrong:?} was found, and {named:?} is not named: {said}");
        }
    }
}

/// The words of a manifest with the test's files and sockets for what a pod has.
fn here(words: &str, volume: &Volume, devices: [&str; 2]) -> String {
    let sockets = volume.socket.parent().expect("the place is a folder");
    words
        .replace(devices[0], &volume.cache.display().to_string())
        .replace(devices[1], &volume.origin.display().to_string())
        .replace("/run/flashfront/nbd.sock", &volume.socket.display().to_string())
        .replace("/run/flashfront/control.sock", &volume.control.display().to_string())
        .replace("/run/flashfront", &sockets.display().to_string())
        .replace("/var/lib/flashfront", &volume.place.file("state").display().to_string())
}

/// The lines below a line with `head`, from the line with `from` on, that begin with `mark`.
fn below<'a>(text: &'a str, from: &str, head: &str, mark: &'a str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(move |line| !line.trim_end().ends_with(from));
    let lines = lines.skip_while(move |line| line.trim() != head).skip(1);
    let found: Vec<&str> = lines.map_while(|line| line.strip_prefix(mark)).collect();
    assert!(!found.is_empty(), "{head:?} is not below {from:?}, or is empty");
    found
}

/// A container's arguments as a command.
fn container(name: &str, volume: &Volume) -> Command {
    let text = text("raw-block.yaml");
    let mut command = flashfront();
    for argument in below(&text, &format!("name: {name}"), "args:", "            - ") {
        command.arg(here(argument, volume, ["/dev/cache", "/dev/volume"]));
    }
    command
}

/// The volume has what the origin has, and takes a write that the origin has at once.
fn use_volume(volume: &Volume) {
    let mut expected = fs::read(&volume.origin).expect("the file is ours");
    let mut seen = vec![0; expected.len()];
    let mut client = volume.connect();
    client.read_at(0, &mut seen).expect("the volume can be read");
    assert!(seen == expected, "the volume differs from its origin");
    let data = Random::new(9).bytes(4096);
    client.write_at(8192, &data, true).expect("the volume can be written");
    expected[8192..][..4096].copy_from_slice(&data);
    assert!(fs::read(&volume.origin).expect("the file is ours") == expected, "writethrough");
    // The probes of both manifests.
    must(&mut volume.ask("status"));
}

fn noise() -> Volume {
    let volume = Volume::new(32, 16);
    fs::write(&volume.origin, Random::new(8).bytes(16 << 20)).expect("the file is ours");
    volume
}

/// The configuration in the DaemonSet's manifest is served.
#[test]
fn the_daemonset_serves_its_configuration() {
    let mut volume = noise();
    let text = text("daemonset.yaml");
    let config = below(&text, "data:", "node.toml: |", "    ").join("\n");
    let devices = ["/dev/disk/by-id/google-local-nvme-ssd-0", "/dev/disk/by-id/google-data"];
    let path = volume.place.file("node.toml");
    fs::write(&path, here(&config, &volume, devices)).expect("the place is ours");
    volume.start_by(flashfront().arg("serve").arg("--config").arg(&path));
    use_volume(&volume);
    volume.stop();
}

/// The containers of the StatefulSet do as its comments say. A container that crashed finds its
/// cache warm, and a new pod begins with an empty one.
#[test]
fn the_statefulset_begins_with_a_new_cache_and_a_crashed_container_with_a_warm_one() {
    let mut volume = noise();
    for _ in 0..2 {
        must(&mut container("new-cache", &volume));
        volume.start_by(&mut container("flashfront", &volume));
        assert_eq!(volume.gauge("blocks_cached"), 0);
        use_volume(&volume);
        let cached = volume.gauge("blocks_cached");
        assert!(cached > 0);
        volume.stop();
        volume.start_by(&mut container("flashfront", &volume));
        assert!(volume.gauge("blocks_cached") > 0, "{}", volume.stderr());
        use_volume(&volume);
        volume.kill9();
        volume.start_by(&mut container("flashfront", &volume));
        assert!(volume.gauge("blocks_cached") > 0, "{}", volume.stderr());
        volume.stop();
    }
}
