// SPDX-License-Identifier: MIT OR Apache-2.0
//! `check` and `repair` of caches that a killed daemon has left and that were damaged since.
//!
//! Damage is placed by what users can know: where `dump` says a structure is, and where the content
//! of a block lies on the device. What every kind of damage does to repair is tested in
//! crates/serve (offline::repair).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Daemon, MIB, Random, Volume, flashfront, must, output, show};
use crate::refusal::assert_refused;

const BLOCK: usize = 4096;
/// Blocks that are clean in the cache.
const CLEAN: u64 = 400;
/// FUA writes of dirty blocks, and the blocks up to each.
const COMMITS: u64 = 12;
const IN_COMMIT: u64 = 5;

/// A block as it was written: which one, and when.
fn content(block: u64, version: u64) -> Vec<u8> {
    Random::new(block << 8 | version).bytes(BLOCK)
}

/// The blocks up to an FUA: apart from each other, so that none is lost together with its
/// neighbour.
fn up_to_fua(nth: u64) -> impl Iterator<Item = u64> {
    (0..IN_COMMIT).map(move |at| nth * 20 + at * 3)
}

/// All of them, in the order of writing.
fn dirty() -> Vec<u64> {
    (0..COMMITS).flat_map(up_to_fua).collect()
}

/// A commit of the log, and the dirty blocks in it.
struct Commit {
    seq: u64,
    offset: u64,
    blocks: Vec<u64>,
}

/// A volume with clean blocks, of which some were written anew and are dirty; killed.
struct Killed {
    volume: Volume,
    /// The cache device as it was left.
    image: Vec<u8>,
}

impl Killed {
    fn new() -> Self {
        let mut volume = Volume::served(32, 64, "writeback");
        let mut client = volume.connect();
        for block in 0..CLEAN {
            client.write_at(block * BLOCK as u64, &content(block, 1), false).expect("the volume can be written");
        }
        drop(client);
        volume.drain();
        volume.stop();
        // The origin takes no writes, so that all stays dirty; each FUA ends a commit.
        let daemon = Daemon::spawn(volume.serve().args(["--inject", "origin:eio,op=write"]), &volume.log);
        daemon.ready();
        let mut client = volume.connect();
        for nth in 0..COMMITS {
            for block in up_to_fua(nth) {
                let last = block == nth * 20 + (IN_COMMIT - 1) * 3;
                client.write_at(block * BLOCK as u64, &content(block, 2), last).expect("the volume can be written");
            }
        }
        drop(client);
        daemon.kill9();
        let image = fs::read(&volume.cache).expect("the file is ours");
        let it = Self { volume, image };
        let found: Vec<u64> = it.commits().into_iter().flat_map(|commit| commit.blocks).collect();
        assert_eq!(found, dirty(), "{}", it.dump());
        it
    }

    fn tool(&self, verb: &str) -> Command {
        let mut command = flashfront();
        command.arg(verb).arg(&self.volume.cache);
        if verb == "repair" {
            command.arg("--state").arg(self.volume.place.file("state"));
        }
        command
    }

    fn dump(&self) -> Value {
        serde_json::from_str(&must(self.tool("dump").arg("--json"))).expect("dump speaks JSON")
    }

    /// Puts the device back, and flips one bit at each place.
    fn damage(&self, places: &[u64]) {
        let file = File::options().write(true).open(&self.volume.cache).expect("the file is ours");
        file.write_all_at(&self.image, 0).expect("the file is ours");
        // As one that was served on it would be refused.
        let state = self.volume.place.file("state");
        if state.exists() {
            fs::remove_dir_all(state).expect("the folder is ours");
        }
        for place in places {
            let byte = self.image[*place as usize] ^ 0x10;
            file.write_all_at(&[byte], *place).expect("the file is ours");
        }
    }

    /// Where that version of a block lies.
    fn place(&self, block: u64, version: u64) -> u64 {
        let wanted = content(block, version);
        let at = self.image.chunks(BLOCK).position(|it| it == wanted).expect("the block is in the cache");
        (at * BLOCK) as u64
    }

    /// The log since the start, as `dump` tells it. One that waits for nobody may share a commit,
    /// or be cut in two.
    fn commits(&self) -> Vec<Commit> {
        let dump = self.dump();
        let number = |it: &Value, key: &str| it[key].as_u64().expect("dump lists numbers");
        let commit = |it: &Value| {
            let (offset, blocks) = (number(it, "offset"), number(it, "blocks") as usize);
            let data = self.image[offset as usize..].chunks(BLOCK).skip(1).take(blocks);
            let block = |bytes: &[u8]| dirty().into_iter().find(|block| bytes == content(*block, 2));
            Commit { seq: number(it, "seq"), offset, blocks: data.filter_map(block).collect() }
        };
        dump["lanes"][0]["commits"].as_array().expect("dump lists commits").iter().map(commit).collect()
    }

    /// `check --json` must find damage of this kind.
    #[track_caller]
    fn assert_found(&self, kind: &str) {
        let report = output(self.tool("check").arg("--json"));
        let json: Value = serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("{}", show(&report)));
        assert_eq!((report.status.code(), &json["ok"]), (Some(1), &false.into()), "{json}");
        let found = json["damage"].as_array().expect("check lists damage");
        assert!(found.iter().any(|it| it["kind"] == kind), "{kind}: {json}");
    }

    /// `repair --dry-run --json`: what it says, having changed nothing.
    #[track_caller]
    fn dry_run(&self) -> Value {
        let before = self.volume.place.hashes();
        let report = output(self.tool("repair").args(["--dry-run", "--json"]));
        let json: Value = serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("{}", show(&report)));
        assert_eq!(report.status.code(), Some(1), "there is something to repair: {}", show(&report));
        assert_eq!((&json["needed"], &json["repaired"]), (&true.into(), &false.into()), "{json}");
        let said = output(self.tool("repair").arg("--dry-run"));
        assert_eq!(said.status.code(), Some(1), "{}", show(&said));
        assert_eq!(self.volume.place.hashes(), before, "a dry run changes nothing");
        json
    }

    /// `repair --yes` with these flags; what it lists must be what the dry run listed.
    #[track_caller]
    fn repair(&self, flags: &[&str], dry: &Value) -> Value {
        let text = must(self.tool("repair").args(["--yes", "--json"]).args(flags));
        let json: Value = serde_json::from_str(&text).expect("repair speaks JSON");
        assert_eq!(json["repaired"], true, "{json}");
        for key in ["lost", "older", "unknown", "clean_kept", "clean_dropped", "dirty_kept"] {
            assert_eq!(json[key], dry[key], "{key}: {json}");
        }
        self.volume.assert_sound();
        assert!(must(self.tool("repair").arg("--yes")).contains("nothing to repair"));
        json
    }

    /// Serves; each block must have the version that is asked for. Then the origin has it, too.
    #[track_caller]
    fn assert_serves(&mut self, version: impl Fn(u64) -> u64) {
        let origin = fs::read(&self.volume.origin).expect("the file is ours");
        self.volume.start();
        let mut client = self.volume.connect();
        let mut bytes = [0; BLOCK];
        for block in 0..CLEAN {
            client.read_at(block * BLOCK as u64, &mut bytes).expect("the volume can be read");
            assert!(bytes[..] == content(block, version(block)), "block {block}: {}", self.volume.stderr());
        }
        drop(client);
        self.volume.drain();
        self.volume.stop();
        self.volume.assert_sound();
        let file = File::options().read(true).write(true).open(&self.volume.origin).expect("the file is ours");
        for block in 0..CLEAN {
            file.read_exact_at(&mut bytes, block * BLOCK as u64).expect("the file is ours");
            assert!(bytes[..] == content(block, version(block)), "block {block} of the origin");
        }
        // For the next damage.
        file.write_all_at(&origin, 0).expect("the file is ours");
    }
}

fn newest(block: u64) -> u64 {
    if dirty().contains(&block) { 2 } else { 1 }
}

/// The blocks of a list of ranges.
fn blocks(ranges: &Value) -> Vec<u64> {
    let ranges = ranges.as_array().expect("a list of ranges");
    let range = |it: &Value| {
        assert_eq!(it["origin"], "data", "{it}");
        let first = it["lba"].as_u64().expect("a sector") / 8;
        first..first + it["blocks"].as_u64().expect("a number")
    };
    ranges.iter().flat_map(range).collect()
}

#[test]
fn repair_of_a_superblock_a_checkpoint_and_clean_data_loses_nothing() {
    let mut killed = Killed::new();
    let head = killed.dump()["lanes"][0]["checkpoint"]["offset"].as_u64().expect("dump names the checkpoint");
    let last = 32 * MIB - BLOCK as u64;
    let clean = killed.place(CLEAN - 1, 1);
    let damages = [("superblock", 100), ("superblock", last + 100), ("checkpoint", head + 40), ("clean_data", clean)];
    for (kind, place) in damages {
        killed.damage(&[place]);
        killed.assert_found(kind);
        let dry = killed.dry_run();
        assert_eq!((&dry["lost_blocks"], &dry["older_blocks"]), (&0.into(), &0.into()), "{kind}: {dry}");
        killed.repair(&[], &dry);
        killed.assert_serves(newest);
    }
}

#[test]
fn repair_lists_a_lost_block_by_volume_and_sector() {
    let mut killed = Killed::new();
    let hit = [dirty()[7], dirty()[40]];
    killed.damage(&hit.map(|block| killed.place(block, 2) + 9));
    killed.assert_found("dirty_data");
    let dry = killed.dry_run();
    assert_eq!(blocks(&dry["lost"]), hit, "{dry}");
    assert_eq!((&dry["older_blocks"], &dry["dirty_kept"]), (&0.into(), &(COMMITS * IN_COMMIT - 2).into()), "{dry}");
    let said = show(&output(killed.tool("repair").arg("--dry-run")));
    for block in hit {
        assert!(said.contains(&format!("volume data, 8 sectors from {}", block * 8)), "{said}");
    }
    assert_refused(&killed.volume.place, &mut killed.tool("repair"), &["no terminal", "--dry-run", "--yes"]);
    killed.repair(&[], &dry);
    // Their only copy is gone: the origin's older version is read.
    killed.assert_serves(|block| if hit.contains(&block) { 1 } else { newest(block) });
}

#[test]
fn repair_of_a_lost_commit_leaves_older_blocks_to_the_operator() {
    let mut killed = Killed::new();
    let commits = killed.commits();
    let nth = commits.iter().position(|it| it.blocks.contains(&dirty()[30])).expect("each block is in a commit");
    let Commit { seq, offset: header, blocks: gone } = &commits[nth];
    let before: Vec<u64> = commits[..nth].iter().flat_map(|it| it.blocks.clone()).collect();
    for keep in [true, false] {
        killed.damage(&[*header + 70]);
        killed.assert_found("log");
        // It has noted a new opening in the superblock before it reads the log; repair must bear
        // that.
        let refusal = show(&output(&mut killed.volume.serve()));
        assert!(refusal.contains("damaged or missing") && refusal.contains("flashfront repair"), "{refusal}");
        let dry = killed.dry_run();
        let unknown = &dry["unknown"][0];
        assert_eq!(dry["unknown"].as_array().map(Vec::len), Some(1), "{dry}");
        assert_eq!((unknown["first_commit"].as_u64(), unknown["last_commit"].as_u64()), (Some(*seq), Some(*seq)));
        assert!(unknown["blocks_at_most"].as_u64() >= Some(gone.len() as u64), "{dry}");
        assert_eq!(blocks(&dry["older"]), before, "{dry}");
        // Not without a decision.
        let undecided = output(killed.tool("repair").arg("--yes"));
        assert!(!undecided.status.success() && show(&undecided).contains("--keep-older"), "{}", show(&undecided));
        let done = killed.repair(&[if keep { "--keep-older" } else { "--drop-older" }], &dry);
        assert_eq!(done["older_decision"], if keep { "keep" } else { "drop" }, "{done}");
        killed.assert_serves(|block| {
            let lost = gone.contains(&block) || (!keep && before.contains(&block));
            if lost { 1 } else { newest(block) }
        });
    }
}

#[test]
fn without_superblocks_repair_says_that_nothing_can_be_placed() {
    let killed = Killed::new();
    killed.damage(&[200, 32 * MIB - BLOCK as u64 + 200]);
    assert_refused(&killed.volume.place, killed.tool("repair").arg("--yes"), &["neither copy", "cache.img"]);
}
