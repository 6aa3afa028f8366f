// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adds the contents of the package beside the program: units, manual, completions, licences,
//! changelog.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::tree::{Tree, commit};
use super::{NAME, copyright, ours};
use crate::run::{Failed, root, run, stdout_of};

/// Units of systemd.
pub(super) const UNITS: [&str; 4] =
    ["flashfront@.service", "flashfront-local@.service", "flashfront-loop@.service", "flashfront.target"];

/// Files of packaging/, and where they belong.
const FILES: [(&str, &str); 5] = [
    ("60-flashfront.rules", "usr/lib/udev/rules.d/60-flashfront.rules"),
    ("tmpfiles.conf", "usr/lib/tmpfiles.d/flashfront.conf"),
    ("needrestart.conf", "etc/needrestart/conf.d/flashfront.conf"),
    ("example.toml", "usr/share/doc/flashfront/examples/data.toml"),
    ("lintian-overrides", "usr/share/lintian/overrides/flashfront"),
];

/// Files of contrib/ for monitoring, and their places.
const MONITORING: [(&str, &str); 2] = [
    ("grafana/flashfront.json", "usr/share/doc/flashfront/examples/grafana.json"),
    ("prometheus/flashfront.rules.yml", "usr/share/doc/flashfront/examples/prometheus.rules.yml"),
];

/// The folder in which each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/flashfront"),
    ("zsh", "usr/share/zsh/vendor-completions/_flashfront"),
    ("fish", "usr/share/fish/vendor_completions.d/flashfront.fish"),
];

/// Adds all of it. `built` is the program, which carries its manual and completions.
pub(super) fn add(tree: &Tree, built: &Path, version: &str) -> Result<(), Failed> {
    for unit in UNITS {
        tree.copy(&ours("systemd").join(unit), &format!("usr/lib/systemd/system/{unit}"), 0o644)?;
    }
    for (from, to) in FILES {
        tree.copy(&ours(from), to, 0o644)?;
    }
    for (from, to) in MONITORING {
        tree.copy(&root().join("contrib").join(from), to, 0o644)?;
    }
    tree.copy(&ours("loop-devices"), "usr/lib/flashfront/loop-devices", 0o755)?;
    // For NAME.toml, which the operator writes.
    tree.folder("etc/flashfront")?;
    for (shell, path) in COMPLETIONS {
        tree.write(path, 0o644, stdout_of(Command::new(built).args(["completions", shell]))?)?;
    }
    manual(tree, built)?;
    documents(tree, version)
}

fn manual(tree: &Tree, built: &Path) -> Result<(), Failed> {
    let folder = "usr/share/man";
    tree.folder(folder)?;
    run(Command::new(built).args(["man", "--into"]).arg(tree.root().join(folder)))?;
    for page in tree.files()?.iter().filter(|file| file.starts_with(folder)) {
        let text = fs::read(tree.root().join(page)).map_err(super::tree::failed(Path::new(page)))?;
        // The page is written once more, for its mode and those of its folders.
        tree.write(page, 0o644, text)?;
        tree.compress(page)?;
    }
    Ok(())
}

fn documents(tree: &Tree, version: &str) -> Result<(), Failed> {
    let folder = format!("usr/share/doc/{NAME}");
    tree.write(&format!("{folder}/copyright"), 0o644, copyright::text()?)?;
    // As Debian names them: what changed, and what changed in the package.
    for (name, text) in [
        ("changelog", fs::read_to_string(root().join("CHANGELOG.md")).map_err(super::tree::failed(root()))?),
        ("changelog.Debian", changes(version)?),
    ] {
        let path = format!("{folder}/{name}");
        tree.write(&path, 0o644, text)?;
        tree.compress(&path)?;
    }
    Ok(())
}

fn changes(version: &str) -> Result<String, Failed> {
    let date = commit("%aD", "Thu, 01 Jan 1970 00:00:00 +0000")?;
    let by = super::control::MAINTAINER;
    Ok(format!(
        "{NAME} ({version}) unstable; urgency=medium\n\n  * Built from the sources; changelog.gz tells what a user can do.\n\n -- {by}  {date}\n"
    ))
}
