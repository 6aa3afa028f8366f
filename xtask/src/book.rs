// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x book`: builds the book of docs/ with mdBook, in target/book.
//!
//! mdBook is the one on the PATH, or is installed in target/tools, which takes a minute once.
//! mdBook asks `cargo x book --mend` to mend the differences of a book to a repository. They are
//! pages that show a file of the root, and links that lead out of docs/. `cargo x tidy` finds dead
//! links.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::markdown::{links, resolve};
use crate::run::{Failed, cargo, read, root, run, target};

/// The book's folder, and its prefix in paths.
const DOCS: &str = "docs/";
/// A page with a line that begins so shows the file named there instead of itself.
const SHOW: &str = "<!-- the book shows ";
/// Files of the root, and the pages that show them.
const SHOWN: [(&str, &str); 3] = [
    ("ARCHITECTURE.md", "docs/internals/architecture.md"),
    ("CONTRIBUTING.md", "docs/internals/contributing.md"),
    ("CHANGELOG.md", "docs/reference/changelog.md"),
];

pub(crate) fn book(args: &[String]) -> Result<(), Failed> {
    match args {
        [] => build(),
        // mdBook asks first whether the renderer is supported, by `supports NAME`: every one is.
        [mend, supports, ..] if mend == "--mend" && supports == "supports" => Ok(()),
        [mend] if mend == "--mend" => mend_the_book(),
        _ => Err(Failed::Usage(format!("{} is unknown; `cargo x book` has no options", args.join(" ")))),
    }
}

/// Writes the pages of the reference, which a test makes from the program and compares otherwise.
pub(crate) fn reference(_args: &[String]) -> Result<(), Failed> {
    let test = ["test", "--quiet", "-p", "flashfront-cli", "--bin", "flashfront", "reference::"];
    run(cargo(test).env("FLASHFRONT_WRITE_REFERENCE", "1"))
}

fn build() -> Result<(), Failed> {
    run(Command::new(mdbook()?).args(["build", "docs"]).current_dir(root()))?;
    println!("{}", target().join("book/index.html").display());
    Ok(())
}

/// The program: installed already, or now.
fn mdbook() -> Result<PathBuf, Failed> {
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|folder| folder.join("mdbook")).find(|program| program.is_file())
    });
    let tools = target().join("tools");
    let ours = tools.join("bin/mdbook");
    if let Some(program) = on_path.or_else(|| ours.is_file().then(|| ours.clone())) {
        return Ok(program);
    }
    eprintln!("mdbook is not installed: it is built in {}, which takes a minute once", tools.display());
    // Without optimisation mdBook is compiled in 54 s of a processor instead of 150, and is as fast
    // for this book.
    let install = ["install", "--locked", "--quiet", "--debug", "mdbook@0.5.4"];
    run(cargo(install).args(["--no-default-features", "--features", "search"]).arg("--root").arg(&tools))?;
    Ok(ours)
}

/// mdBook's side: `[context, book]` as JSON on stdin, the book on stdout.
fn mend_the_book() -> Result<(), Failed> {
    let mut input = String::new();
    let file = |error| Failed::File { path: "the book, from mdbook".into(), error };
    std::io::stdin().read_to_string(&mut input).map_err(file)?;
    let mut input: Value = serde_json::from_str(&input).map_err(|error| file(error.into()))?;
    let book = input.get_mut(1).map(Value::take).unwrap_or_default();
    let book = with_chapters(book)?;
    std::io::stdout().write_all(book.to_string().as_bytes()).map_err(file)
}

/// The book with every chapter mended.
fn with_chapters(mut value: Value) -> Result<Value, Failed> {
    let items = ["items", "sub_items"].into_iter();
    for list in items {
        let Some(items) = value.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for item in items {
            let Some(chapter) = item.get_mut("Chapter") else { continue };
            let path = chapter.get("path").and_then(Value::as_str).map(|path| format!("{DOCS}{path}"));
            if let (Some(path), Some(Value::String(content))) = (path, chapter.get_mut("content")) {
                *content = mended(&path, content)?;
            }
            *chapter = with_chapters(chapter.take())?;
        }
    }
    Ok(value)
}

/// The page at `path` as the book shows it.
fn mended(path: &str, text: &str) -> Result<String, Failed> {
    let shown = text.lines().find_map(|line| line.strip_prefix(SHOW)).and_then(|rest| rest.split(' ').next());
    match shown.map(|file| resolve(path, file)) {
        Some(file) => Ok(with_links(path, &file, &read(&root().join(&file))?)),
        None => Ok(with_links(path, path, text)),
    }
}

/// The text of the file `from` with links that lead somewhere from the page `page`. A link to a
/// file that the book doesn't have becomes its text and the file's path.
fn with_links(page: &str, from: &str, text: &str) -> String {
    let mut mended = String::new();
    let mut done = 0;
    for link in links(text) {
        let whole = &text[link.target.clone()];
        let (path, anchor) = whole.split_once('#').map_or((whole, ""), |(path, _)| (path, &whole[path.len()..]));
        if path.is_empty() || path.contains(':') {
            continue;
        }
        let file = resolve(from, path);
        let in_book =
            SHOWN.iter().find(|(file_of_root, _)| *file_of_root == file).map_or(file.as_str(), |(_, page)| page);
        if let Some(in_book) = in_book.strip_prefix(DOCS) {
            // mdBook makes index.html of a README.
            let in_book = in_book.replace("README.md", "index.md");
            mended.push_str(&text[done..link.target.start]);
            mended.push_str(&format!("{}{in_book}{anchor}", "../".repeat(page.matches('/').count() - 1)));
            done = link.target.end;
        } else if let Some(words) = link.text {
            mended.push_str(&text[done..words.start - 1]);
            mended.push_str(&format!("{} (`{file}` in the repository)", &text[words]));
            done = text[link.target.end..].find(')').map_or(text.len(), |end| link.target.end + end + 1);
        }
    }
    mended.push_str(&text[done..]);
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_and_other_files_are_named() {
        let text = "[a](../b.md#c) [d](#e) [f](https://x) [`g`](../../bench/h.md \"t\"), [i](../../CHANGELOG.md)";
        let expected = "[a](../b.md#c) [d](#e) [f](https://x) `g` (`bench/h.md` in the repository), [i](../reference/changelog.md)";
        assert_eq!(with_links("docs/internals/j.md", "docs/internals/j.md", text), expected);
    }

    #[test]
    fn a_page_shows_a_file_of_the_root_with_links_from_the_page() {
        let text = "[a](docs/adr/b.md) [c](CONTRIBUTING.md#d) [e](docs/README.md)";
        let page = "docs/internals/architecture.md";
        assert_eq!(
            with_links(page, "ARCHITECTURE.md", text),
            "[a](../adr/b.md) [c](../internals/contributing.md#d) [e](../index.md)"
        );
        assert!(
            mended(page, "# Architecture\n<!-- the book shows ../../ARCHITECTURE.md here -->\n").unwrap().len() > 1000
        );
    }

    #[test]
    fn every_file_of_the_root_has_its_page() {
        for (file, page) in SHOWN {
            let text = read(&root().join(page)).unwrap();
            assert!(text.contains(&format!("{SHOW}../../{file} here -->")), "{page}");
            assert_eq!(resolve(page, &format!("../../{file}")), file);
        }
    }
}
