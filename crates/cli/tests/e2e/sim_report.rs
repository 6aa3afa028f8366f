// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--report FILE` of `flashfront sim`: a page that needs nothing else, and harms nothing.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Place, flashfront, must, output, show};
use crate::refusal::{Table, refused};

fn replay(trace: &Path, report: &Path) -> Command {
    let mut replay = flashfront();
    replay.args(["sim", "replay", "--format", "blocks", "--policy", "all"]).arg(trace).arg("--report").arg(report);
    replay
}

fn trace(place: &Place, name: &str) -> std::path::PathBuf {
    let path = place.file(name);
    let lines: String = (0..4000).map(|nth| format!("{}\n", nth * nth % 613)).collect();
    fs::write(&path, lines).expect("a file can be made here");
    path
}

/// What would need the network or run as a program, and elements that are not closed.
#[track_caller]
pub(crate) fn assert_self_contained(page: &str) {
    for foreign in ["<script", "http", "src=", "@import", "url(", "<link"] {
        assert!(!page.contains(foreign), "{foreign} in the report");
    }
    for element in ["html", "head", "body", "svg", "table", "thead", "tbody", "tr", "td", "text", "div", "footer"] {
        let begun = page.matches(&format!("<{element} ")).count() + page.matches(&format!("<{element}>")).count();
        assert_eq!(begun, page.matches(&format!("</{element}>")).count(), "{element}");
        assert!(begun > 0, "there is no {element}");
    }
    assert!(page.contains("prefers-color-scheme: dark"), "no dark mode");
    assert_eq!(charts(page), page.matches("<svg class=\"for-narrow\"").count(), "a chart that no phone shows");
    assert_eq!(
        page.matches("<td").count(),
        page.matches(" data-column=\"").count(),
        "a cell that a phone does not name"
    );
    assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("inf "), "a figure that is none");
}

/// Charts in a page, each of which is there for wide and for narrow windows.
pub(crate) fn charts(page: &str) -> usize {
    page.matches("<svg class=\"for-wide\"").count()
}

/// A disk that is full, as `| head` would be: the exit code says so, and the report is there all
/// the same.
#[test]
fn a_report_is_written_also_if_nothing_can_be_printed() {
    let place = Place::new();
    let trace = trace(&place, "some.trace");
    let mut adapt = flashfront();
    adapt.args(["sim", "adapt", "--cache-blocks", "1024", "--rounds", "1", "--policy", "lru", "--report"]);
    adapt.arg(place.file("adapt"));
    for (name, mut command) in [("replay", replay(&trace, &place.file("replay"))), ("adapt", adapt)] {
        let full = File::options().write(true).open("/dev/full").expect("it is there");
        let output = command.stdin(Stdio::null()).stdout(full).output().expect("the program can be started");
        assert_eq!(output.status.code(), Some(1), "{name}: {}", show(&output));
        assert!(show(&output).contains("stdout: "), "{name}: {}", show(&output));
        assert!(place.file(name).exists(), "{name}: {}", show(&output));
    }
}

#[test]
fn sim_replay_writes_a_report_that_needs_nothing_else() {
    let place = Place::new();
    let (trace, report) = (trace(&place, "a <b> & c.trace"), place.file("out.html"));
    let without =
        must(flashfront().args(["sim", "replay", "--policy", "all", "--format", "blocks", "--csv"]).arg(&trace));
    let with = must(replay(&trace, &report).arg("--csv"));
    assert_eq!(with, without, "a report changes nothing of what is printed");
    let page = fs::read_to_string(&report).expect("the report is there");
    assert_self_contained(&page);
    for word in ["flashfront", "wtinylfu", "a &lt;b&gt; &amp; c.trace", "sim replay", "1.20 MiB", "25 %"] {
        assert!(page.contains(word), "{word} is missing");
    }
    assert!(!page.contains("<b> & c"), "a name is no markup");
    // Hits over sizes, and hits against writes at four sizes.
    assert_eq!(charts(&page), 5);

    // Another time, through a link, with less: it replaces the first, and leaves nothing else
    // there.
    let link = place.file("link.html");
    symlink(&report, &link).expect("a link can be made here");
    must(replay(&trace, &link).args(["--cache-blocks", "100"]));
    let again = fs::read_to_string(&report).expect("the report is there");
    assert_self_contained(&again);
    assert_eq!(charts(&again), 2);
    assert!(fs::symlink_metadata(&link).is_ok_and(|it| it.is_symlink()));
    assert_eq!(place.hashes().len(), 3, "the trace, the report and the link");
}

#[test]
fn sim_replay_of_several_traces_reports_their_means_and_what_was_done_before_one_failed() {
    let place = Place::new();
    let (first, second, report) = (trace(&place, "first"), trace(&place, "second"), place.file("out.html"));
    must(replay(&first, &report).arg(&second));
    let page = fs::read_to_string(&report).expect("the report is there");
    assert_self_contained(&page);
    assert!(page.contains("Mean of 2 traces"), "means are missing");
    let output = output(replay(&first, &report).arg(place.file("none")));
    assert!(!output.status.success() && show(&output).contains("can't be opened"), "{}", show(&output));
    let page = fs::read_to_string(&report).expect("the report is there");
    assert!(page.contains("first") && !page.contains("Mean of"), "what was done is reported");
}

#[test]
fn of_a_trace_far_down_the_folders_a_report_shows_the_ends_of_the_path() {
    let place = Place::new();
    let folder = place.file("a-folder-with-a-name-of-its-own/and-one-in-it/that-holds-traces");
    fs::create_dir_all(&folder).expect("folders can be made here");
    let trace = folder.join("some.trace");
    fs::rename(self::trace(&place, "some.trace"), &trace).expect("within one file system");
    let report = place.file("out.html");
    must(&mut replay(&trace, &report));
    let page = fs::read_to_string(&report).expect("the report is there");
    let whole = format!("title=\"{}\"", trace.display());
    assert!(page.contains(&whole), "{whole} is missing");
    let heading = page.split_once("<h2").and_then(|it| it.1.split_once("</h2>")).expect("a heading").0;
    let shown = heading.rsplit_once("\">").expect("an element").1;
    assert!(shown.contains('…') && shown.contains("/some.trace") && shown.chars().count() < 60, "{shown}");
}

#[test]
fn a_folder_with_pictures_of_others_is_refused_before_anything_is_simulated() {
    let place = Place::new();
    fs::create_dir(place.file("pictures")).expect("a folder can be made here");
    fs::write(place.file("pictures/01-hits.svg"), "<svg>mine</svg>").expect("a file can be made here");
    // The trace can't be read either: whoever looks at the folder first says so.
    let mut replay = replay(&place.file("no trace"), &place.file("out.html"));
    refused(&place, replay.arg("--pictures").arg(place.file("pictures")), &["01-hits.svg", "name another folder"])
        .unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_place_where_no_report_can_be_is_refused_before_anything_is_simulated() {
    let place = Place::new();
    let trace = trace(&place, "trace");
    let (notes, empty, dangling) = (place.file("notes.html"), place.sparse("empty", 0), place.file("dangling"));
    fs::write(&notes, "<!DOCTYPE html>\n<p>mine").expect("a file can be made here");
    symlink(place.file("nowhere"), &dangling).expect("a link can be made here");
    let mut table = Table::default();
    for (name, path, words) in [
        ("a page of somebody else's", notes, &["notes.html", "no report of flashfront", "name another"][..]),
        ("an empty file", empty, &["no report of flashfront"]),
        ("the trace itself", trace.clone(), &["no report of flashfront"]),
        ("a folder", place.dir().to_owned(), &["not a regular file"]),
        ("a device", "/dev/null".into(), &["not a regular file"]),
        ("no folder", place.file("none/out.html"), &["none", "no such file"]),
        ("a link to nothing", dangling, &["dangling", "no such file"]),
    ] {
        // The trace can't be read either: whoever looks at the place first says so.
        table.case(name, refused(&place, &mut replay(&place.file("no trace"), &path), words));
    }
    table.assert();
}
