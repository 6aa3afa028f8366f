// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is printed: to readers that have gone, and with paths of any characters.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::harness::{Volume, flashfront, must, output, show};

/// A reader that has what it wanted is no failure. A verdict stays what it is.
#[test]
fn a_reader_that_has_gone_changes_no_exit_code() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let code = |args: &[&OsStr]| {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let output = output(flashfront().args(args).stdout(writer));
        assert!(output.stderr.is_empty(), "{}", show(&output));
        output.status.code()
    };
    let cache = volume.cache.as_os_str();
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    for line in ["completions bash", "completions zsh", "man", "man serve"] {
        assert_eq!(code(&words(line)), Some(0), "{line}");
    }
    assert_eq!(code(&["check".as_ref(), cache]), Some(0));
    assert_eq!(code(&["dump".as_ref(), cache]), Some(0));
    let file = File::options().write(true).open(&volume.cache).expect("the file is ours");
    file.write_all_at(&[7; 4096], 0).expect("the file is ours");
    for args in [&["check".as_ref(), cache][..], &["check".as_ref(), "--json".as_ref(), cache]] {
        assert_eq!(code(args), Some(1), "one copy of the superblock is damaged");
    }
}

/// A path can't make a line that looks like one of ours.
#[test]
fn a_path_is_never_more_than_a_part_of_a_line() {
    let mut volume = Volume::new(32, 64);
    let cache = volume.place.file("cache\nERROR forged\x1b[31m");
    fs::rename(&volume.cache, &cache).expect("the file is ours");
    volume.cache = cache;
    must(&mut volume.format());
    let one_line = |text: &str| {
        let forged = text.lines().any(|line| line.starts_with("ERROR forged")) || text.contains("\x1b[31m");
        assert!(!forged, "{text}");
    };
    volume.start();
    let status = must(&mut volume.ask("status"));
    one_line(&status);
    assert!(status.contains(r"cache\nERROR") && status.contains(r"forged\u{1b}[31m"), "{status}");
    volume.kill9();
    // A foreign change of the origin is told with its path, as is all that is wrong with the cache.
    volume.start();
    volume.stop();
    one_line(&volume.stderr());
    one_line(&must(flashfront().arg("check").arg(&volume.cache)));
}
