// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kept inputs of every target, once each: what was a bug stays mended, also where nobody
//! fuzzes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flashfront_fuzz::{TARGETS, Target};

/// All kept inputs together; more would be a burden to everybody who clones.
const CORPUS_BYTES_MAX: u64 = 64 << 10;

fn inputs(target: &Target) -> Vec<PathBuf> {
    let folder = target.corpus();
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    inputs.sort();
    inputs
}

#[test]
fn no_kept_input_finds_a_bug() {
    let mut bytes = 0;
    for target in &TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for input in inputs {
            let data = fs::read(&input).unwrap();
            bytes += data.len() as u64;
            let found = std::panic::catch_unwind(|| target.run(&data));
            assert!(found.is_ok(), "{} finds a bug (see above): cargo x fuzz {0} {}", target.name, input.display());
        }
        target.run(&[]);
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "the corpora have {bytes} bytes, more than {CORPUS_BYTES_MAX}");
}

#[test]
fn each_target_has_its_file_and_its_line_in_the_manifest() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let files = fs::read_dir(fuzz.join("fuzz_targets")).unwrap();
    let files: BTreeSet<String> = files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect();
    assert_eq!(files, names);
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in &TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{} is no program", target.name);
        let file = fs::read_to_string(fuzz.join("fuzz_targets").join(format!("{}.rs", target.name))).unwrap();
        assert!(file.contains(&format!("run(\"{}\", data)", target.name)), "{} runs another target", target.name);
    }
}
