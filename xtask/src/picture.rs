// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x picture`: draws the picture of the README from a comparison that is in the tree.
//!
//! The command reads what `flashfront sim compare --suite caches-2015 --csv` printed, and writes an
//! SVG file that suits light and dark pages. Nothing is simulated here. A test holds the picture in
//! the tree against the data.
//!
//! No field of the table is quoted, so lines are split by hand and not by the crate csv. xtask is
//! built before anything else, and has few crates.

use std::fmt::{self, Write};
use std::fs;

use crate::run::{Failed, root};

const DATA: &str = "bench/runs/2026-11-28-models/caches-2015.csv";
const PICTURE: &str = "docs/pictures/result.svg";
/// When the data was made.
const DATE: &str = "2026-11-28";

/// Draws the picture, and prints what it says.
pub(crate) fn picture(args: &[String]) -> Result<(), Failed> {
    if let Some(arg) = args.first() {
        return Err(Failed::Usage(format!("{arg}: the picture takes no arguments")));
    }
    let data = root().join(DATA);
    let text = fs::read_to_string(&data).map_err(|error| Failed::File { path: data, error })?;
    let result = Figures::read(&text)?;
    let (path, svg) = (root().join(PICTURE), result.svg());
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(&path, svg)).map_err(|error| Failed::File { path, error })?;
    println!("{PICTURE}: {}", result.title());
    Ok(())
}

/// A task of the suite that is shown, and its name for people. All have 32 requests in flight.
const TASKS: [(&str, &str); 3] = [
    ("18", "Random reads of 4 KiB, cached"),
    ("19", "A database’s mix of 8 KiB: two reads to a write (reads are shown)"),
    ("21", "Random writes of 4 KiB"),
];

/// A system of the suite: its name there, its name here, and the class of its bars.
const SYSTEMS: [(&str, &str, &str); 4] = [
    ("flashfront", "Flashfront", "ours"),
    ("bcache", "bcache", "bcache"),
    ("dm-cache", "dm-cache (mq)", "dm"),
    ("hdd", "the disk alone", "disk"),
];

/// A speed in MB/s, and the speed that was published of the real system.
#[derive(Clone, Copy, Debug)]
struct Speed {
    modelled: f64,
    published: Option<f64>,
}

/// The content of the picture.
struct Figures {
    /// The speeds of each task, in the order of the systems.
    speeds: [[Speed; SYSTEMS.len()]; TASKS.len()],
    /// How far models of the systems shown are off, of all tasks whose speed was published: the
    /// median, as a share.
    off_by: f64,
}

impl Figures {
    fn read(csv: &str) -> Result<Self, Failed> {
        let mut speeds = [[Speed { modelled: 0.0, published: None }; SYSTEMS.len()]; TASKS.len()];
        for ((task, _), row) in TASKS.iter().zip(&mut speeds) {
            for ((system, ..), speed) in SYSTEMS.iter().zip(row) {
                *speed = find(csv, task, system)
                    .ok_or_else(|| Failed::Usage(format!("{DATA} has no speed of {system} in task {task}")))?;
            }
        }
        let shown = all(csv).filter(|cell| SYSTEMS.iter().any(|system| system.0 == cell.1));
        let off = |it: Speed| it.published.map(|published| (it.modelled / published - 1.0).abs());
        let mut off: Vec<f64> = shown.filter_map(|cell| off(cell.2)).collect();
        off.sort_by(f64::total_cmp);
        let off_by = *off.get(off.len() / 2).ok_or_else(|| Failed::Usage(format!("{DATA} has no published speed")))?;
        Ok(Self { speeds, off_by })
    }

    /// The result in one sentence: the database's mix, by the other caches and by the disk.
    fn title(&self) -> String {
        let [ours, bcache, dm, disk] = self.speeds[1].map(|speed| speed.modelled);
        let times = |other: f64| match ours / other {
            few @ ..10.0 => format!("{few:.1}"),
            many => format!("{many:.0}"),
        };
        format!(
            "A database’s load: {} × bcache, {} × dm-cache, {} × the disk alone",
            times(bcache),
            times(dm),
            times(disk)
        )
    }

    fn svg(&self) -> String {
        let mut out = String::new();
        self.draw(&mut out).expect("a string takes any text");
        out
    }

    fn draw(&self, out: &mut String) -> fmt::Result {
        let title = self.title();
        let height = TOP + TASKS.len() as f64 * GROUP + CAPTION.len() as f64 * 19.0 + 12.0;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">"
        )?;
        writeln!(
            out,
            "<!-- Made by `cargo x picture` from {DATA}. -->\n<title>{title}</title>\n<style>{STYLE}</style>"
        )?;
        writeln!(out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>")?;
        writeln!(out, "<text class=\"title\" x=\"16\" y=\"30\">{title}</text>")?;
        for (nth, ((_, name), speeds)) in TASKS.iter().zip(&self.speeds).enumerate() {
            let top = TOP + nth as f64 * GROUP;
            writeln!(out, "<text class=\"task\" x=\"16\" y=\"{:.0}\">{name}</text>", top + 16.0)?;
            for (nth, ((_, name, class), speed)) in SYSTEMS.iter().zip(speeds).enumerate() {
                bar(out, top + 26.0 + nth as f64 * BAR, name, class, *speed, self.most())?;
            }
        }
        let caption = TOP + TASKS.len() as f64 * GROUP + 10.0;
        for (nth, line) in CAPTION.iter().enumerate() {
            let (y, line) = (caption + nth as f64 * 19.0, line.replace("DATE", DATE));
            let line = line.replace("OFF", &format!("{:.0} %", self.off_by * 100.0));
            writeln!(out, "<text class=\"caption\" x=\"16\" y=\"{y:.0}\">{line}</text>")?;
        }
        writeln!(out, "</svg>")
    }

    fn most(&self) -> f64 {
        let all = self.speeds.iter().flatten().flat_map(|speed| [speed.modelled, speed.published.unwrap_or(0.0)]);
        all.fold(0.0, f64::max)
    }
}

/// Returns all lines of a CSV file that have a speed: the task, the system, and the speed, which is
/// in KiB/s there.
fn all(csv: &str) -> impl Iterator<Item = (&str, &str, Speed)> {
    csv.lines().filter_map(|line| {
        let [_, task, system, "kbps", published, modelled] = line.split(',').collect::<Vec<_>>()[..] else {
            return None;
        };
        let mb = |kib: &str| kib.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6);
        Some((task, system, Speed { modelled: mb(modelled)?, published: mb(published) }))
    })
}

fn find(csv: &str, task: &str, system: &str) -> Option<Speed> {
    all(csv).find(|cell| (cell.0, cell.1) == (task, system)).map(|cell| cell.2)
}

const WIDTH: f64 = 760.0;
const TOP: f64 = 46.0;
/// Height of a task's bars with their heading.
const GROUP: f64 = 130.0;
const BAR: f64 = 23.0;
const LEFT: f64 = 132.0;
/// Width of the longest bar; its figure stands right of it.
const LONGEST: f64 = 520.0;

fn bar(out: &mut String, y: f64, name: &str, class: &str, speed: Speed, most: f64) -> fmt::Result {
    let wide = |value: f64| (value / most * LONGEST).max(1.0);
    let (length, middle) = (wide(speed.modelled), y + 14.0);
    writeln!(out, "<text class=\"name\" x=\"{:.0}\" y=\"{middle:.0}\">{name}</text>", LEFT - 8.0)?;
    writeln!(
        out,
        "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{length:.1}\" height=\"18\"><title>{name}: {}</title></rect>",
        mb(speed.modelled)
    )?;
    let mut end = LEFT + length;
    if let Some(published) = speed.published {
        let x = LEFT + wide(published);
        end = end.max(x);
        writeln!(out, "<path class=\"published\" d=\"M{x:.1} {:.0}v22\"/>", y - 2.0)?;
    }
    let figure = if class == "ours" { " class=\"figure\"" } else { "" };
    writeln!(out, "<text{figure} x=\"{:.1}\" y=\"{middle:.0}\">{}</text>", end + 7.0, mb(speed.modelled))
}

fn mb(value: f64) -> String {
    if value < 9.95 { format!("{value:.1} MB/s") } else { format!("{value:.0} MB/s") }
}

const CAPTION: [&str; 5] = [
    "Modelled, not measured: all run the same jobs in virtual time, 32 requests in flight, on models of a",
    "256 GB SATA SSD and a 4 TB disk. Processor time costs nothing, which flatters Flashfront.",
    "bcache and dm-cache (below lvmcache) are models of 2015. Upright marks: what was published for the real",
    "ones (geomflash, 2015); the models are off by OFF in the median. All systems and tasks:",
    "flashfront sim compare --suite caches-2015 (DATE; any machine gives the same figures).",
];

/// Colours of Okabe and Ito, lighter ones on dark pages; the same as in reports and on the
/// dashboard.
const STYLE: &str = "
text { font: 14px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1a1a1a; }
.title { font-size: 18px; font-weight: 700; } .task, .figure { font-weight: 600; } .name { text-anchor: end; }
.caption { font-size: 13px; fill: #565656; } .paper { fill: #ffffff; }
.ours { fill: #d55e00; } .bcache { fill: #0072b2; } .dm { fill: #009e73; } .disk { fill: #8a8a8a; }
.published { stroke: #1a1a1a; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
text { fill: #e8e8e8; } .caption { fill: #a8adb3; } .paper { fill: #14171a; } .published { stroke: #e8e8e8; }
.ours { fill: #ff7d26; } .bcache { fill: #4a9fe0; } .dm { fill: #2bbd92; } .disk { fill: #8f959b; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_tree_is_what_its_data_says() {
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        let outcome = Figures::read(&read(DATA)).unwrap();
        assert!(read(PICTURE) == outcome.svg(), "{PICTURE} is older than {DATA}: run cargo x picture");
    }

    #[test]
    fn the_title_fits() {
        let text = fs::read_to_string(root().join(DATA)).unwrap();
        // A bold letter of 18 px is 10.7 px wide in DejaVu Sans, which is the widest of the fonts
        // named.
        assert!(Figures::read(&text).unwrap().title().chars().count() as f64 * 10.7 < WIDTH - 32.0);
    }

    #[test]
    fn a_system_without_a_figure_is_named() {
        let Err(error) = Figures::read("suite,task,system,metric,published,simulated\n") else {
            panic!("there is nothing in it")
        };
        assert!(error.to_string().contains("no speed of flashfront in task 18"), "{error}");
    }
}
