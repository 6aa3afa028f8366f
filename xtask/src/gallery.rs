// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x gallery`: screenshots of the dashboard of a daemon that has been under a load.
//!
//! A browser and a load are what the end-to-end tests drive, so one of those makes the pictures.
//! They need chromium, chromedriver and fio.

use std::path::PathBuf;

use crate::run::{Failed, cargo, root, run, target};

/// Makes the pictures, and prints their paths.
pub(crate) fn gallery(args: &[String]) -> Result<(), Failed> {
    let (mut folder, mut seconds): (PathBuf, u64) = (target().join("gallery"), 60);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| Failed::Usage(format!("{arg} needs a value")))?;
        match arg.as_str() {
            "--dir" => folder = root().join(value),
            "--seconds" => {
                let wrong = |_| Failed::Usage(format!("--seconds {value}: not a number of seconds"));
                seconds = value.parse().map_err(wrong)?;
            }
            _ => return Err(Failed::Usage(format!("unknown argument {arg}: --dir DIR, --seconds N"))),
        }
    }
    let test = ["test", "--quiet", "--workspace", "--test", "e2e", "--"];
    let mut command = cargo(test);
    command.args(["dashboard::gallery", "--exact", "--ignored", "--nocapture"]);
    run(command.env("FLASHFRONT_GALLERY", folder).env("FLASHFRONT_GALLERY_SECONDS", seconds.to_string()))
}
