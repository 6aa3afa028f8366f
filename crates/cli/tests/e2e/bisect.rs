// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--assert` as scripts and `git bisect run` meet it: exit codes, and the right commit.

use std::process::Command;

use crate::harness::{Place, flashfront, must, skip_without, tool};

/// The junk and the measured job at a sixteenth: a second for each run.
const COMPARE: [&str; 8] = ["sim", "compare", "--suite", "lvmcache-2017", "--until", "full 30 min", "--scale", "1/16"];

/// The exit code, and what stderr says.
fn asserted(systems: &str, condition: &str) -> (Option<i32>, String) {
    let mut command = flashfront();
    let output = command.args(COMPARE).args(["--systems", systems, "--json", "--assert", condition]).output();
    let output = output.expect("it starts");
    // Figures come in any case but a wrong condition; the verdict is not among them.
    let json: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
    assert_eq!(json.is_ok(), output.status.code() != Some(2), "{output:?}");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_exit_code_says_whether_a_condition_holds() {
    let (code, told) = asserted("lvmcache 4.11,ssd", "iops(read) > 10 and iops(read) < 0.1 * iops(read, ssd)");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("assert: holds") && told.contains("0.1 * iops(read, ssd) = "), "{told}");
    let (code, told) = asserted("lvmcache 4.11", "hit_ratio(full 30 min) > 0.9 or p99_us(read) < 500");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("false  hit_ratio(full 30 min) = 0."), "{told}");
    let (code, told) = asserted("ssd", "hit_ratio(read) > 0.9");
    assert_eq!(code, Some(125), "a bare SSD has no hits: {told}");
    let (code, told) = asserted("ssd", "iops(rede) > 1");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("Did you mean `read`?") && told.contains("\n       ^^^^"), "{told}");
}

fn git(place: &Place, args: &[&str]) -> String {
    let mut git: Command = tool("git");
    git.current_dir(place.file("kernels")).args(["-c", "user.name=me", "-c", "user.email=me@example.org"]);
    must(git.args(args))
}

/// git finds the release since which the model of lvmcache learns, and skips one that can't be
/// measured.
#[test]
fn git_bisect_finds_the_release_that_mended_lvmcache() {
    if skip_without(&["git", "sh"]) {
        return;
    }
    let place = Place::new();
    let kernels = place.file("kernels");
    std::fs::create_dir(&kernels).expect("a folder");
    git(&place, &["init", "-q"]);
    let program = std::path::absolute(flashfront().get_program()).expect("a path");
    let compare: Vec<String> = COMPARE.iter().map(|it| format!("'{it}'")).collect();
    let script = format!(
        "#!/bin/sh\ncase $(cat release) in 4.9 | 4.10 | 4.11) model='lvmcache 4.11' ;; 4.13) model=ssd ;; \
         *) model='lvmcache 4.12' ;; esac\n{} {} --systems \"$model\" --assert 'hit_ratio(read) > 0.9'\ncode=$?\n\
         case $code in 0) exit 1 ;; 1) exit 0 ;; 2) exit 128 ;; *) exit $code ;; esac\n",
        program.display(),
        compare.join(" ")
    );
    std::fs::write(kernels.join("measure.sh"), script).expect("written");
    for release in ["4.9", "4.10", "4.11", "4.12", "4.13", "4.14", "4.15"] {
        std::fs::write(kernels.join("release"), release).expect("written");
        git(&place, &["add", "."]);
        git(&place, &["commit", "-q", "-m", &format!("Linux {release}")]);
    }
    git(&place, &["bisect", "start", "--term-old", "broken", "--term-new", "fixed"]);
    git(&place, &["bisect", "fixed", "HEAD"]);
    git(&place, &["bisect", "broken", "HEAD~6"]);
    let told = git(&place, &["bisect", "run", "sh", "./measure.sh"]);
    assert_eq!(git(&place, &["show", "-s", "--format=%s", "bisect/fixed"]), "Linux 4.12\n", "{told}");
}
