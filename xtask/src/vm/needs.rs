// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the parts of `cargo x vm` need on this machine, and how they are called.

use std::process::Command;

use crate::run::Failed;

pub(super) fn usage() -> Failed {
    Failed::Usage("usage: cargo x vm [--kills N] [--seed S] [--keep] [--canary]\n       cargo x vm compare [--systems A,B] [--keep]\n       cargo x vm reconnect [--kills N] [--keep]\n       cargo x vm ublk [--keep]\n       cargo x vm record [--keep]".to_owned())
}

/// Refuses a machine that can't run the guest: it names the packages of missing programs.
pub(super) fn missing(programs: &[(&str, &str)]) -> Result<(), Failed> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Failed::Usage(format!("the guest is an x86_64, this is {}", std::env::consts::ARCH)));
    }
    let absent = |program: &str| Command::new(program).arg("--version").output().is_err();
    let packages: Vec<&str> = programs.iter().filter(|(it, _)| absent(it)).map(|(_, package)| *package).collect();
    match packages[..] {
        [] => Ok(()),
        _ => Err(Failed::Usage(format!("missing here: apt-get install {}", packages.join(" ")))),
    }
}
