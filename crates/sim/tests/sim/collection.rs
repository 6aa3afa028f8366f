// SPDX-License-Identifier: MIT OR Apache-2.0
//! The collection of loads is a list that tools read, and a page of the book. Both say the same.

const LOADS: &str = include_str!("../../loads.txt");
const PAGE: &str = include_str!("../../../../docs/laboratory/loads.md");

/// Each load is in the book with its side; a third of the loads write two thirds or more.
#[test]
fn the_book_tells_all_loads_and_their_sides() {
    let rows: Vec<Vec<&str>> =
        PAGE.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").collect()).collect();
    // Other tables of the page have no column of sides.
    let rows: Vec<_> =
        rows.into_iter().filter(|row| row.len() == 6 && ["tuned on", "looked at"].contains(&row[1])).collect();
    let lines = LOADS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let listed: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    assert!(listed.len() >= 40 && rows.len() == listed.len(), "{} rows, {} loads", rows.len(), listed.len());
    for (row, load) in rows.iter().zip(&listed) {
        let side = if load[1] == "tuned" { "tuned on" } else { "looked at" };
        assert!(load[1] == "tuned" || load[1] == "seen", "{load:?}");
        assert_eq!((row[0], row[1]), (&*format!("| `{}`", load[0]), side), "{load:?}");
    }
    let written = |row: &&Vec<&str>| row[4].parse::<f64>().expect("a share in percent") >= 66.6;
    let heavy = rows.iter().filter(written).count();
    assert!(heavy * 3 >= rows.len(), "{heavy} of {} loads write two thirds", rows.len());
    // Seeds of a kind are alike: a kind is on one side.
    let kind = |load: &Vec<&str>| load[0].split('?').next().unwrap_or_default().to_owned();
    for made in listed.iter().filter(|load| load[0].starts_with("made:")) {
        assert!(listed.iter().all(|other| kind(other) != kind(made) || other[1] == made[1]), "{made:?}");
    }
}
