// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x house` measures how easily a stranger finds the way through each crate.
//!
//! What is counted, for each folder with a `Cargo.toml` and Rust files in `src/`:
//!
//! | figure | meaning |
//! |---|---|
//! | files, median, p90, max | files, and lines of a file |
//! | circle | files of the largest import circle: each of them leads to each other one |
//! | spread | files with an `impl` of the type that has `impl`s in the most files |
//! | wide | comment lines of more than 100 columns |
//!
//! Tests are left out: folders and files named `tests`, modules and items under `#[cfg(test)]`.
//! Only wide comments count there, too. An arrow goes from a file to each file that one of its
//! paths leads to. Paths are in imports, exports of other modules' names, code and macros. A line
//! `mod name;` is no arrow.
//!
//! `cargo x tidy` compares the figures with their ceilings, which may only fall. Lines have
//! ceilings in steps of [`STEP_LINES`], so that one line more in one file is no failure.

mod circles;
mod source;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::files::{File, files};
use crate::run::{Failed, print};
use crate::tidy::comments::wide;
use crate::tidy::debts::Debt;
use crate::tidy::source::{is_test_file, lines_of_code};
use tree::Tree;

/// The figures that a new crate may have. Only higher ones are written down as ceilings.
const MEDIAN_LINES: usize = 200;
const P90_LINES: usize = 300;
const MAX_LINES: usize = 500;
const CIRCLE_FILES: usize = 0;
const SPREAD_FILES: usize = 1;

/// Ceilings of lines are multiples of this.
const STEP_LINES: usize = 25;

/// A crate and its figures.
struct Crate {
    folder: String,
    tree: Tree,
    files: usize,
    median: usize,
    p90: usize,
    max: usize,
    /// The files of each circle, the largest first.
    circles: Vec<Vec<usize>>,
    /// The most spread type and the files with its `impl`s.
    spread: Option<(String, Vec<usize>)>,
    wide: usize,
}

/// Prints the figures of all crates, or of those whose folders are named and what they come from.
pub(crate) fn house(args: &[String]) -> Result<(), Failed> {
    let crates = crates(&files()?)?;
    let known: Vec<&str> = crates.iter().map(|it| it.folder.as_str()).collect();
    if let Some(unknown) = args.iter().find(|arg| !known.contains(&arg.trim_end_matches('/'))) {
        let text = format!("{unknown} is no folder of a crate; expected nothing or some of {}", known.join(", "));
        return Err(Failed::Usage(text));
    }
    let mut out = String::new();
    out.push_str("lines without tests; circle and spread in files; wide: comment lines of more than 100 columns\n\n");
    let _ = writeln!(
        out,
        "{:16}{:>6}{:>8}{:>6}{:>6}{:>8}{:>8}{:>6}  most spread",
        "crate", "files", "median", "p90", "max", "circle", "spread", "wide"
    );
    let wanted = |it: &&Crate| args.is_empty() || args.iter().any(|arg| arg.trim_end_matches('/') == it.folder);
    for it in crates.iter().filter(wanted) {
        let (name, spread) = it.spread.as_ref().map_or(("-", 0), |(name, files)| (name.as_str(), files.len()));
        let Crate { folder, files, median, p90, max, wide, .. } = it;
        let _ =
            writeln!(out, "{folder:16}{files:6}{median:8}{p90:6}{max:6}{:8}{spread:8}{wide:6}  {name}", it.circle());
    }
    if !args.is_empty() {
        crates.iter().filter(wanted).for_each(|it| it.explain(&mut out));
    }
    print(&out)
}

/// The figures that have ceilings, for `cargo x tidy`.
pub(crate) fn debts(files: &[File]) -> Result<Vec<Debt>, Failed> {
    let mut debts = Vec::new();
    for it in crates(files)? {
        let spread = it.spread.as_ref();
        let see = format!("`cargo x house {}`", it.folder);
        let figures = [
            ("lines-median", step(it.median), MEDIAN_LINES, "lines of the median file".to_owned()),
            ("lines-p90", step(it.p90), P90_LINES, "lines that nine of ten files do not exceed".to_owned()),
            ("lines-max", step(it.max), MAX_LINES, "lines of the longest file".to_owned()),
            ("circle", it.circle(), CIRCLE_FILES, "files in the largest import circle".to_owned()),
            (
                "spread",
                spread.map_or(0, |(_, files)| files.len()),
                SPREAD_FILES,
                format!("files with an `impl` of {}", spread.map_or("-", |(name, _)| name)),
            ),
            ("wide", it.wide, 0, "comment lines of more than 100 columns".to_owned()),
        ];
        debts.extend(figures.map(|(rule, count, allowed, what)| Debt {
            rule,
            path: it.folder.clone(),
            count,
            allowed,
            what: format!("{what} ({see})"),
        }));
    }
    Ok(debts)
}

/// Lines as they are compared with a ceiling.
fn step(lines: usize) -> usize {
    lines.next_multiple_of(STEP_LINES)
}

/// Measures all crates that have files in `src/`.
fn crates(files: &[File]) -> Result<Vec<Crate>, Failed> {
    let folders = files.iter().filter_map(|file| file.path.as_str().strip_suffix("/Cargo.toml"));
    let all = folders.map(|folder| Crate::new(folder, files).map_err(Failed::Usage));
    all.filter(|it| it.as_ref().map_or(true, |it| it.files > 0)).collect()
}

impl Crate {
    fn new(folder: &str, files: &[File]) -> Result<Self, String> {
        let (root, src) = (format!("{folder}/"), format!("{folder}/src/"));
        let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
        let own: Vec<&File> = sources.filter(|file| file.path.starts_with(&root)).collect();
        let code: BTreeMap<&str, &File> = own
            .iter()
            .filter_map(|file| Some((file.path.as_str().strip_prefix(&src)?, *file)))
            .filter(|(_, file)| !is_test_file(&file.path))
            .collect();
        let tree = Tree::new(code.iter().map(|(path, file)| (*path, file.text.as_str())))
            .map_err(|error| format!("{src}{error}"))?;
        let mut lines: Vec<usize> = tree.paths().map(|path| lines_of_code(code[path])).collect();
        lines.sort_unstable();
        // The nearest rank.
        let at =
            |percent: usize| lines.get((lines.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0);
        let impls = tree.impls().into_iter().map(|((_, _, name), files)| (name, files.into_iter().collect::<Vec<_>>()));
        let spread = impls.max_by(|a, b| a.1.len().cmp(&b.1.len()).then_with(|| b.0.cmp(&a.0)));
        Ok(Self {
            folder: folder.to_owned(),
            files: lines.len(),
            median: at(50),
            p90: at(90),
            max: at(100),
            circles: circles::circles(&tree.arrows()),
            spread,
            wide: own.iter().map(|file| wide(&file.text).len()).sum(),
            tree,
        })
    }

    fn circle(&self) -> usize {
        self.circles.first().map_or(0, Vec::len)
    }

    /// Tells the files of the circles with the paths that close them, and those of the most
    /// spread type.
    fn explain(&self, out: &mut String) {
        let paths: Vec<&str> = self.tree.paths().collect();
        let arrows = self.tree.arrows();
        for circle in &self.circles {
            let _ = writeln!(out, "\n{}: a circle of {} files", self.folder, circle.len());
            for &from in circle {
                let _ = writeln!(out, "  {}", paths[from]);
                for &to in arrows[from].iter().filter(|to| circle.contains(to)) {
                    let why: Vec<String> = self.tree.why(from, to).into_iter().collect();
                    let _ = writeln!(out, "    -> {}: {}", paths[to], why.join(", "));
                }
            }
        }
        if let Some((name, files)) = &self.spread {
            let files: Vec<&str> = files.iter().map(|&file| paths[file]).collect();
            let _ = writeln!(out, "\n{}: impl {name} in {} files: {}", self.folder, files.len(), files.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(files: &[(&str, String)]) -> BTreeMap<&'static str, usize> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new(path, text)).collect();
        debts(&files).expect("the texts are Rust").into_iter().map(|debt| (debt.rule, debt.count)).collect()
    }

    #[test]
    fn the_figures_of_a_crate_are_those_of_its_code() {
        let wide = format!("// {}\n", "x".repeat(100));
        let code = |lines: usize| "fn f() {}\n".repeat(lines);
        let files = [
            ("crates/a/Cargo.toml", String::new()),
            ("crates/a/src/lib.rs", format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", code(10), code(50))),
            ("crates/a/src/b.rs", format!("use crate::c::C;\npub struct B;\nimpl B {{}}\n{}", code(17))),
            ("crates/a/src/c.rs", format!("use crate::b::B;\npub struct C;\nimpl B {{}}\n{}", code(27))),
            ("crates/a/src/c/tests.rs", format!("use crate::lib;\n{}", code(500))),
            ("crates/a/tests/d.rs", wide.clone() + &code(500)),
            ("crates/ab/src/lib.rs", code(900)),
        ];
        let found = figures(&files);
        let expected =
            [("circle", 2), ("lines-max", 50), ("lines-median", 25), ("lines-p90", 50), ("spread", 2), ("wide", 1)];
        assert_eq!(found, BTreeMap::from(expected));
    }
}
