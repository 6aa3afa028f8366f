// SPDX-License-Identifier: MIT OR Apache-2.0
//! ext4 and xfs on a real block device, doing what people do: unpack sources, git clone, git grep,
//! trim, check, mount again.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::harness::{Volume, must, output, skip, skip_without, tool};

const CACHE_MIB: u64 = 64;
const ORIGIN_MIB: u64 = 8 * CACHE_MIB;
/// The most bytes of sources: with git's copies about half of the volume, and several times the
/// cache.
const SOURCES_BYTES: u64 = 48 << 20;

#[test]
fn ext4_with_512_byte_blocks() {
    file_system("ext4", 512, "writeback");
}

#[test]
fn ext4_with_4096_byte_blocks() {
    file_system("ext4", 4096, "writethrough");
}

#[test]
fn xfs_with_512_byte_blocks() {
    file_system("xfs", 512, "writeback");
}

#[test]
fn xfs_with_4096_byte_blocks() {
    file_system("xfs", 4096, "writearound");
}

fn file_system(kind: &str, block_bytes: u32, mode: &str) {
    let mkfs = format!("mkfs.{kind}");
    let fsck = if kind == "ext4" { "e2fsck" } else { "xfs_repair" };
    if skip_without_block_devices() || skip_without(&[&mkfs, fsck, "git", "tar", "diff", "fstrim"]) {
        return;
    }
    let mut volume = Volume::served(CACHE_MIB, ORIGIN_MIB, mode);
    let archive = pack_sources(&volume);
    let device = BlockDevice::attach(&volume, block_bytes);
    must(tool(&mkfs).arg(if kind == "ext4" { "-F" } else { "-f" }).arg(&device.path));

    let mount = Mount::new(&device, &volume);
    let tree = mount.dir.join("tree");
    unpack(&archive, &tree);
    clone(&tree, &mount.dir.join("clone"));
    must(&mut tool("sync"));
    // Give back what was deleted, under a living neighbour.
    must(tool("rm").arg("-rf").arg(tree.join(".git")));
    let trimmed = output(tool("fstrim").arg("--verbose").arg(&mount.dir));
    if !trimmed.status.success() {
        skip(&format!("fstrim on this kernel: {}", String::from_utf8_lossy(&trimmed.stderr).trim()));
    }
    mount.unmount();
    must(&mut check(kind, &device.path));

    // Read it all again, through an empty page cache.
    let mount = Mount::new(&device, &volume);
    let reference = volume.place.file("reference");
    unpack(&archive, &reference);
    must(tool("diff").args(["-r", "--no-dereference"]).arg(&reference).arg(mount.dir.join("tree")));
    must(&mut git(&mount.dir.join("clone"), &["fsck", "--full", "--strict"]));
    let differing = must(&mut git(&mount.dir.join("clone"), &["status", "--porcelain"]));
    assert_eq!(differing, "", "{}", volume.stderr());
    mount.unmount();
    drop(device);

    // And without the cache.
    volume.drain();
    let status = volume.status();
    assert_eq!(status["corrupt_blocks"], 0, "{status}");
    volume.stop();
    volume.assert_sound();
    must(&mut check(kind, &volume.origin));
}

/// A check that changes nothing and fails at the least finding.
pub(crate) fn check(kind: &str, device: &Path) -> Command {
    let mut command = if kind == "ext4" { tool("e2fsck") } else { tool("xfs_repair") };
    command.args(if kind == "ext4" { ["-f", "-n"].as_slice() } else { ["-n"].as_slice() });
    if kind == "xfs" && device.is_file() {
        command.arg("-f");
    }
    command.arg(device);
    command
}

/// An archive of this repository's crates and of those that cargo has unpacked for their build:
/// real sources, without the network.
fn pack_sources(volume: &Volume) -> PathBuf {
    let archive = volume.place.file("sources.tar");
    let mut tar = tool("tar");
    tar.arg("-cf").arg(&archive).arg("-C").arg(crate::existing_data::sources()).arg(".");
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let mut room = SOURCES_BYTES;
    for registry in cargo.iter().flat_map(|cargo| folders(&cargo.join("registry/src"))) {
        tar.arg("-C").arg(&registry);
        for krate in folders(&registry) {
            let line = must(tool("du").args(["-s", "--block-size=1"]).arg(&krate));
            let bytes = line.split('\t').next().and_then(|it| it.parse().ok()).unwrap_or(u64::MAX);
            if bytes < room {
                room -= bytes;
                tar.arg(krate.file_name().expect("a folder has a name"));
            }
        }
    }
    must(&mut tar);
    archive
}

/// The folders in `dir`, sorted; none if there is no `dir`.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn unpack(archive: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder can be made");
    must(tool("tar").arg("-xf").arg(archive).arg("-C").arg(to));
}

/// Puts `tree` under git, clones it, and searches the clone.
fn clone(tree: &Path, to: &Path) {
    must(&mut git(tree, &["init", "--quiet"]));
    must(&mut git(tree, &["add", "--all", "--force"]));
    let who = ["-c", "user.name=Test", "-c", "user.email=test@example.org"];
    must(git(tree, &who).args(["commit", "--quiet", "--message", "Sources"]));
    must(tool("git").args(["clone", "--quiet", "--no-local"]).arg(tree).arg(to));
    let found = must(&mut git(to, &["grep", "-l", "SPDX-License-Identifier"]));
    assert!(found.lines().count() > 10, "git grep finds {found:?}");
}

/// Without `gc`, which a commit of many files starts in the background: it writes into `.git` while
/// the test removes that folder.
fn git(dir: &Path, args: &[&str]) -> Command {
    let mut command = tool("git");
    command.args(["-c", "gc.auto=0"]).arg("-C").arg(dir).args(args);
    command
}
