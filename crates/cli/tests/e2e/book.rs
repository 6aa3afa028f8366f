// SPDX-License-Identifier: MIT OR Apache-2.0
//! The book: every block of Start, Guide and Decide does what its page says.
//!
//! A page is one session of a shell: its `sh` blocks run in order, and what a `text` block behind
//! one shows must come. Configuration, units and XML go through the programs that read them.
//! docs/internals/testing.md tells how a page is written.

mod files;
mod page;
mod session;

use std::path::{Path, PathBuf};

use crate::harness::{Place, flashfront, is_root, skip, skip_without, tool};
use page::{Block, Kind, Page};
use session::Session;

/// The folders of which every page is tested.
const FOLDERS: [&str; 3] = ["start", "guide", "decide"];
/// What a usual machine with the packages of `./test` has.
const USUAL: [&str; 6] = ["root", "/dev/fuse", "setpriv", "fio", "git", "parallel"];
/// Blocks of all pages that need more than that (QEMU, a module of the kernel), or that nothing
/// here may run. More are refused here.
const RARE: usize = 18;

/// A test for each page, with the programs that all of the page needs.
macro_rules! pages {
    ($($test:ident: $path:literal $([$($program:literal),*])?;)*) => {
        const PAGES: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $test() {
                if !skip_without(&["bash", "unshare", "ip", $($($program),*)?]) {
                    follow($path);
                }
            }
        )*
    };
}

pages! {
    what: "start/what.md";
    install: "start/install.md";
    first_volume: "start/first-volume.md" ["nbdcopy", "mkfs.ext4", "losetup"];
    make: "guide/make.md";
    serve: "guide/serve.md";
    many_volumes: "guide/many-volumes.md" ["nbdinfo", "nbdcopy"];
    grow: "guide/grow.md" ["nbdinfo"];
    connect: "guide/connect.md";
    nbd: "guide/nbd.md" ["nbdinfo", "nbdcopy", "qemu-img"];
    qemu: "guide/qemu.md";
    libvirt: "guide/libvirt.md";
    proxmox: "guide/proxmox.md";
    vhost_user_blk: "guide/vhost-user-blk.md";
    ublk: "guide/ublk.md";
    fuse: "guide/fuse.md" ["losetup", "mkfs.ext4"];
    same_machine: "guide/same-machine.md";
    another_machine: "guide/another-machine.md" ["openssl", "nbdinfo", "qemu-img"];
    boot: "guide/boot.md";
    monitor: "guide/monitor.md" ["curl"];
    faults: "guide/faults.md" ["nbdcopy"];
    threads: "guide/threads.md";
    space: "guide/space.md";
    mirror: "guide/mirror.md";
    network_volumes: "guide/network-volumes.md" ["nbdkit", "nbdcopy", "jq"];
    ordered: "guide/ordered.md";
    bridges: "guide/bridges.md" ["qemu-img", "qemu-storage-daemon"];
    failover: "guide/failover.md" ["openssl", "nbdkit", "nbdcopy"];
    object_store: "guide/object-store.md" ["mkfs.ext4", "cmp", "nbdcopy", "jq"];
    stop: "guide/stop.md";
    upgrade: "guide/upgrade.md";
    move_devices: "guide/move.md";
    containers: "guide/containers.md";
    cloud: "guide/cloud.md";
    need: "decide/need.md";
    size: "decide/size.md";
    mode: "decide/mode.md";
    record: "decide/record.md";
    advise: "decide/advise.md";
    which_cache: "decide/which-cache.md";
    did_it_help: "decide/did-it-help.md";
    bench: "decide/bench.md" ["fio"];
    bisect: "decide/bisect.md" ["git"];
    fleet: "decide/fleet.md";
}

#[test]
fn every_page_has_a_test() {
    let mut found = Vec::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(docs().join(folder)).expect("the book is there") {
            let name = entry.expect("the folder can be read").file_name();
            let path = format!("{folder}/{}", name.to_string_lossy());
            // Beside pages there are pictures.
            found.extend(Some(path).filter(|path| path.ends_with(".md")));
        }
    }
    found.sort();
    let mut tested = PAGES.to_vec();
    tested.sort_unstable();
    assert_eq!(found, tested);
}

#[test]
fn few_blocks_need_a_rare_machine() {
    let pages = PAGES.iter().map(|path| read(path));
    let rare: Vec<String> = pages
        .flat_map(|page| {
            let rare = page.blocks.iter().filter(|block| is_rare(block));
            rare.map(|block| format!("{}:{}: {}", page.path, block.line, block.needs.join(" "))).collect::<Vec<_>>()
        })
        .collect();
    assert!(
        rare.len() <= RARE,
        "{} blocks are run almost nowhere, at most {RARE} may be:\n{}",
        rare.len(),
        rare.join("\n")
    );
}

/// A page that is wrong must not pass.
#[test]
fn a_wrong_page_is_found() {
    if skip_without(&["bash", "unshare", "ip"]) || !Session::is_possible() {
        return;
    }
    for (text, why) in [
        ("```sh\necho one\nfalse\n```\n", "a command failed"),
        ("```sh\necho one\n```\n```text\ntwo\n```\n", "this line does not come: two"),
        ("```toml\n[policy]\ndirty = \"1%\"\n```\n", "the daemon does not take this"),
        ("```console\n$ ls\n```\n", "is no kind of block"),
        ("```text\none\n```\n", "no sh block prints this"),
    ] {
        let panic = std::panic::catch_unwind(|| follow_page(&Page::parse("page.md", text)));
        let message = panic.expect_err(why).downcast::<String>().expect("a message");
        assert!(message.contains(why), "{message}");
    }
}

fn is_rare(block: &Block) -> bool {
    block.kind == Kind::Elsewhere || block.needs.iter().any(|need| !USUAL.contains(&need.as_str()))
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn read(path: &str) -> Page {
    let text = std::fs::read_to_string(docs().join(path)).unwrap_or_else(|error| panic!("docs/{path}: {error}"));
    Page::parse(&format!("docs/{path}"), &text)
}

/// Does what the page says, from its top to its bottom.
fn follow(path: &str) {
    follow_page(&read(path));
}

fn follow_page(page: &Page) {
    let place = Place::new();
    let runnable: Vec<&Block> = page.blocks.iter().filter(|block| can_run(page, block)).collect();
    let files: Vec<&Block> = runnable.iter().copied().filter(|block| block.kind != Kind::Shell).collect();
    for block in &files {
        files::check(page, block, &place);
    }
    let shell: Vec<&Block> = runnable.iter().copied().filter(|block| block.kind == Kind::Shell).collect();
    if shell.is_empty() {
        return;
    }
    let Some(mut session) = Session::start(&place, &files, &shell) else {
        return skip("no namespaces of its own for a page's commands");
    };
    for block in shell {
        session.run(page, block);
    }
    session.end(page);
}

/// Whether this machine has what a block needs; says so if not.
fn can_run(page: &Page, block: &Block) -> bool {
    let missing: Vec<&str> = block.needs.iter().map(String::as_str).filter(|need| !has(need)).collect();
    if !missing.is_empty() {
        skip(&format!("{}:{}: no {} here", page.path, block.line, missing.join(", ")));
    }
    missing.is_empty()
}

/// `root`; a path; or a program.
fn has(need: &str) -> bool {
    match need {
        "root" => is_root(),
        path if path.starts_with('/') => Path::new(path).exists(),
        program => {
            tool("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|it| it.status.success())
        }
    }
}

/// The program under test, by its whole path.
fn program() -> PathBuf {
    let program = PathBuf::from(flashfront().get_program());
    program.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}
