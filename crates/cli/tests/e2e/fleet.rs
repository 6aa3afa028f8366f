// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront advise --fleet`: one row for each recording, whatever ends a start, and on a Ray
//! cluster by `contrib/ray/advise-fleet.py`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Place, flashfront, must, output, show, skip, tool};
use crate::refusal::refused;

/// Nine recordings in two folders, and a file that is none.
fn recordings(place: &Place) -> PathBuf {
    let folder = place.file("fleet");
    fs::create_dir_all(folder.join("inner")).expect("a folder can be made here");
    for recording in 0..9_u64 {
        let mut lines = String::new();
        for nth in 0..1500 + recording * 100 {
            let (seconds, sector) = (nth as f64 / 50.0, nth * 7919 % (300 * (recording + 1)) * 8192);
            writeln!(lines, "{seconds:.2} ; {sector} ; 8 ; R ; 0.0 ; 0.0").expect("a string takes all");
        }
        let inner = if recording % 2 == 0 { "inner/" } else { "" };
        fs::write(folder.join(format!("{inner}{recording}.load")), lines).expect("a file can be made here");
    }
    fs::write(folder.join("note, \"old\""), "no trace at all\n").expect("a file can be made here");
    folder
}

fn fleet(folder: &Path, out: &Path) -> Command {
    let mut command = flashfront();
    command.args(["advise", "--json", "--fleet"]).arg(folder).arg("--out").arg(out);
    command
}

fn sized_now(command: &mut Command) -> u64 {
    let found: Value = serde_json::from_str(&must(command)).expect("one object");
    assert_eq!((&found["recordings"], &found["unreadable"]), (&10.into(), &1.into()), "{found}");
    found["sized_now"].as_u64().expect("a number")
}

#[test]
fn a_fleet_has_a_row_for_each_file_and_goes_on_after_kill_9() {
    let place = Place::new();
    let folder = recordings(&place);
    let (whole, killed) = (place.file("whole.csv"), folder.join("killed.csv"));
    assert_eq!(sized_now(&mut fleet(&folder, &whole)), 10);
    let text = fs::read_to_string(&whole).expect("the table is there");
    let names: Vec<&str> = text.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!((names[0], names[1], names[5]), ("recording", "1.load", "inner/0.load"), "{text}");
    assert!(text.contains("\n\"note, \"\"old\"\"\",") && text.contains("none of the known formats"), "{text}");
    // The file that is none is tried again, and nothing else.
    assert_eq!(sized_now(&mut fleet(&folder, &whole)), 1);
    let mut child = fleet(&folder, &killed).stdout(Stdio::null()).spawn().expect("our own program can be started");
    let journal = folder.join("killed.csv.rows");
    let rows = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while rows() < 3 && child.try_wait().expect("our own child can be asked").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("our own child can be killed");
    child.wait().expect("our own child can be waited for");
    assert!(sized_now(&mut fleet(&folder, &killed)) < 10, "nothing was kept");
    assert_eq!(fs::read_to_string(&killed).expect("the table is there"), text);
    // A recording that was changed is sized again.
    for ours in [&killed, &journal] {
        fs::remove_file(ours).expect("the file is ours");
    }
    fs::copy(folder.join("1.load"), folder.join("3.load")).expect("a file can be copied");
    assert_eq!(sized_now(&mut fleet(&folder, &whole)), 2, "3.load, and what is no recording");
    assert_ne!(fs::read_to_string(&whole).expect("the table is there"), text);
}

#[test]
fn a_fleet_spares_what_is_not_its_own() {
    let place = Place::new();
    let folder = recordings(&place);
    let (foreign, done, empty) = (place.file("foreign.csv"), place.file("done.csv"), place.file("empty"));
    fs::write(&foreign, "mine\n").expect("a file can be made here");
    fs::write(place.file("other.csv.rows"), "mine\n").expect("a file can be made here");
    fs::create_dir(&empty).expect("a folder can be made here");
    must(&mut fleet(&folder.join("1.load"), &done));
    for (folder, out, more, words) in [
        (&folder, &foreign, &[][..], &["foreign.csv", "there is a file already", "move it away"][..]),
        (&folder, &place.file("other.csv"), &[], &["other.csv.rows", "no journal of flashfront"]),
        (&folder, &place.file("table.txt"), &[], &["table.txt", ".parquet or .csv"]),
        (&folder, &done, &["--strict"], &["done.csv.rows", "--strict", "name another --out"]),
        (&folder, &place.file("no/table.csv"), &[], &["no/table.csv"]),
        (&empty, &place.file("table.csv"), &[], &["empty", "no file is there"]),
        (&place.file("none"), &place.file("table.csv"), &[], &["none", "can't be read"]),
    ] {
        refused(&place, fleet(folder, out).args(more), words)
            .unwrap_or_else(|why| panic!("{} {}: {why}", folder.display(), out.display()));
    }
}

#[test]
fn ray_finds_what_one_machine_finds() {
    let python = |code: &str| output(tool("python3").args(["-c", code]));
    let ready = Command::new("python3").args(["-c", "import ray, pyarrow"]).output();
    if !ready.is_ok_and(|it| it.status.success()) {
        return skip("no python3 with ray and pyarrow (pip install ray pyarrow)");
    }
    let place = Place::new();
    let folder = recordings(&place);
    let (alone, rays) = (place.file("alone.parquet"), place.file("rays.parquet"));
    must(&mut fleet(&folder, &alone));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/ray/advise-fleet.py");
    let program = flashfront().get_program().to_owned();
    must(tool("python3").arg(script).arg(&folder).arg(&rays).env("FLASHFRONT", program));
    let same = python(&format!(
        "import pyarrow.parquet as pq; a, b = (pq.read_table(it).sort_by('recording') for it in {:?}); assert a.num_rows == 10; assert a.equals(b)",
        [alone, rays]
    ));
    assert!(same.status.success(), "{}", show(&same));
}
