// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront man`: the manual, a page for each verb and one for the configuration file.
//!
//! The pages are made from what `--help` says and from the reference of the configuration file, so
//! they can't disagree with these. The program carries its pages with it.

mod configuration;
mod page;

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use crate::usage::misused;
use crate::{Cli, human};

/// Show the manual page of a verb, or of the configuration file.
///
/// On a terminal man(1) shows the page. Elsewhere the page itself goes to stdout, as troff.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashfront man                     the first page, which lists the others
  flashfront man serve
  flashfront man mirror add
  flashfront man flashfront.toml     the configuration file
  flashfront man --into share/man    all pages as files: share/man/man1/flashfront-serve.1 and so on")]
pub(crate) struct Man {
    /// The verb, or flashfront.toml [default: the page that lists all verbs].
    #[arg(value_name = "VERB", conflicts_with = "into")]
    verb: Vec<String>,
    /// Write all pages into this folder, each into man1 or man5 there.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// A page of the manual.
struct Page {
    /// The words behind `flashfront man`; none for the first page.
    words: Vec<String>,
    /// The page's name, as in `flashfront-serve`.
    name: String,
    /// The section of the manual: 1 for commands, 5 for files.
    section: u8,
    /// The page, as troff.
    text: String,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let pages = pages()?;
        if let Some(folder) = self.into {
            write(&pages, &folder)?;
            return Ok(ExitCode::SUCCESS);
        }
        let Some(page) = pages.iter().find(|page| page.words == self.verb) else {
            let names: Vec<String> =
                pages.iter().map(|page| page.words.join(" ")).filter(|it| !it.is_empty()).collect();
            misused!("there is no page `{}`; there are: {}", self.verb.join(" "), names.join(", "));
        };
        if std::io::stdout().is_terminal() { show(page) } else { human::print(&page.text).map(|()| ExitCode::SUCCESS) }
    }
}

/// Makes all pages: the command's, the verbs' with their verbs, and the configuration file's.
fn pages() -> anyhow::Result<Vec<Page>> {
    let mut pages = page::of_verbs(Cli::command())?;
    pages.push(configuration::page(flashfront_serve::config::REFERENCE));
    Ok(pages)
}

fn write(pages: &[Page], folder: &Path) -> anyhow::Result<()> {
    for page in pages {
        let section = folder.join(format!("man{}", page.section));
        fs::create_dir_all(&section).with_context(|| format!("{}: can't make the folder", section.display()))?;
        let path = section.join(format!("{}.{}", page.name, page.section));
        fs::write(&path, &page.text).with_context(|| format!("{}: can't write the page", path.display()))?;
    }
    Ok(())
}

/// Shows a page by man(1); where that is missing, prints the help of the verb.
fn show(page: &Page) -> anyhow::Result<ExitCode> {
    let file = tempfile::Builder::new().prefix("flashfront-").suffix(&format!(".{}", page.section)).tempfile()?;
    fs::write(file.path(), &page.text)?;
    // `-l`: the argument is a file, and not a name to look for. man-db and mandoc have it.
    match Command::new("man").arg("-l").arg(file.path()).status() {
        Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
        Ok(_) => {
            anyhow::bail!("man(1) failed; `flashfront man {} | cat` prints the page as troff", page.words.join(" "))
        }
        Err(_) => {
            eprintln!("flashfront: there is no man(1) here (in Debian: apt install man-db); this is the help instead");
            human::print(&page::plain(Cli::command(), &page.words))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_a_page_that_says_what_its_help_says() {
        let pages = pages().unwrap();
        let page = |name: &str| &pages.iter().find(|page| page.name == name).unwrap_or_else(|| panic!("{name}")).text;
        for verb in Cli::command().get_subcommands() {
            let text = page(&format!("flashfront-{}", verb.get_name()));
            for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                assert!(text.contains(&format!(".SH {heading}\n")), "{}: {heading}", verb.get_name());
            }
            for option in verb.get_arguments().filter_map(|arg| arg.get_long()) {
                let written = option.replace('-', "\\-");
                assert!(text.contains(&format!("\\-\\-{written}")), "{}: --{option}", verb.get_name());
            }
        }
        assert!(page("flashfront-mirror-add").contains("DEVICE") && page("flashfront-sim-replay").contains("TRACE"));
        assert!(page("flashfront").contains("flashfront\\-serve(1)"));
    }

    #[test]
    fn pages_become_files_of_their_sections() {
        let dir = tempfile::tempdir().unwrap();
        write(&pages().unwrap(), dir.path()).unwrap();
        for file in ["man1/flashfront.1", "man1/flashfront-mirror-add.1", "man5/flashfront.toml.5"] {
            assert!(dir.path().join(file).is_file(), "{file}");
        }
    }
}
