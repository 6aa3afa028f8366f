// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference pages of the book: made from the command line and from the configuration file's
//! reference, and held against the pages in the tree.
//!
//! Tests only: the program itself has `--help` and `serve --print-config`. `cargo x reference`
//! writes the pages.

use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use crate::Cli;

/// `cargo x reference` sets this: then the pages are written instead of compared.
const WRITE: &str = "FLASHFRONT_WRITE_REFERENCE";

#[test]
fn the_page_of_the_command_line_is_current() {
    is_current("cli.md", &command_line());
}

#[test]
fn the_page_of_the_configuration_is_current() {
    is_current("config.md", &configuration(flashfront_serve::config::REFERENCE));
}

#[track_caller]
fn is_current(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = (1..).zip(text.lines()).find(|(line, text)| found.lines().nth(line - 1) != Some(text));
    assert!(found == text, "docs/reference/{page} is out of date, run `cargo x reference`: {line:?}");
}

/// Every verb with its options.
fn command_line() -> String {
    let mut page = String::from(
        "# Command line\n\n\
         `flashfront VERB --help` prints the text of this page. What scripts read goes to stdout, all else to stderr.\n\n\
         | exit code | means |\n|---|---|\n\
         | 0 | done |\n| 1 | not done, or damage found |\n| 2 | wrong usage; nothing was changed |\n\
         | 130 | Ctrl-C stopped it; the message says what is left as it was |\n\n\
         Every verb has `-q` (say only what went wrong on stderr; results, on stdout, are printed all the same), `-v` (say more on stderr), `-h` and `--help`.\n",
    );
    let mut command = Cli::command();
    command.build();
    for verb in command.get_subcommands() {
        add_verb(&mut page, verb, 2);
    }
    page
}

fn add_verb(page: &mut String, verb: &Command, level: usize) {
    let name = verb.get_bin_name().unwrap_or(verb.get_name());
    // `help` of verbs that have verbs of their own.
    if verb.get_name() == "help" {
        return;
    }
    let about = verb.get_long_about().or(verb.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = verb.clone().render_usage().to_string().replace("Usage: ", "");
    *page += &format!("\n{} {name}\n\n{}\n\n```text\n{}\n```\n", "#".repeat(level), sentence(&about), usage.trim());
    let options: Vec<&Arg> = verb.get_arguments().filter(|option| !is_everywhere(option)).collect();
    if !options.is_empty() {
        page.push('\n');
    }
    for option in options {
        *page += &item(option);
    }
    if let Some(examples) = verb.get_after_help() {
        *page += &format!("\n```text\n{}\n```\n", examples.to_string().trim_end());
    }
    for verb in verb.get_subcommands() {
        add_verb(page, verb, level + 1);
    }
}

/// Options that every verb has.
fn is_everywhere(option: &Arg) -> bool {
    option.is_hide_set() || ["verbose", "quiet", "help", "version"].contains(&option.get_id().as_str())
}

/// An option as an item of a list.
fn item(option: &Arg) -> String {
    let values = option.get_value_names().filter(|_| option.get_action().takes_values()).unwrap_or_default();
    let values: Vec<String> = values.iter().map(|name| format!("<{name}>")).collect();
    let flag = option.get_long().map(|long| format!("--{long} "));
    let name = format!("{}{}", flag.unwrap_or_default(), values.join(" "));
    let help = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut item = format!("- `{}`: {}", name.trim(), sentence(&help).replace("\n\n", "\n\n  "));
    let defaults: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && option.get_action().takes_values() {
        item += &format!(" Default: `{}`.", defaults.join(" "));
    }
    item.push('\n');
    if option.get_action().takes_values() {
        for value in option.get_possible_values() {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            item += &format!("  - `{}`{}{help}\n", value.get_name(), if help.is_empty() { "" } else { ": " });
        }
    }
    item
}

/// Writes a sentence with a full stop. Text in angle brackets would be HTML.
fn sentence(text: &str) -> String {
    let text = text.trim().replace('<', "\\<");
    if text.ends_with(['.', ']', ':', '"']) { text } else { text + "." }
}

/// Writes every key with its text in the reference.
fn configuration(reference: &str) -> String {
    let mut page = String::from(
        "# Configuration file\n\n\
         `flashfront serve --config FILE` reads a TOML file. `flashfront serve --print-config` prints the text of this page as such a file.\n",
    );
    let mut words: Vec<&str> = Vec::new();
    let mut code: Vec<&str> = Vec::new();
    // The table that keys belong to.
    let mut table = String::new();
    for line in reference.lines().chain([""]) {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_code = bare.starts_with('[') || bare.split_once(" = ").is_some_and(|(key, _)| is_key(key));
        if is_code {
            code.push(line);
        } else if let Some(text) = line.strip_prefix('#') {
            if !code.is_empty() {
                add_key(&mut page, &mut table, &mut words, &mut code);
            }
            words.push(text.trim());
        } else {
            add_key(&mut page, &mut table, &mut words, &mut code);
        }
    }
    page
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Adds the gathered text as a section, if it has code, or as a paragraph.
fn add_key(page: &mut String, table: &mut String, words: &mut Vec<&str>, code: &mut Vec<&str>) {
    let mut keys: Vec<String> = Vec::new();
    for line in code.iter().map(|line| line.trim_start_matches("# ")) {
        match line.split_once(" = ") {
            Some((key, _)) if table.is_empty() => keys.push(format!("`{key}`")),
            Some((key, _)) => keys.push(format!("`{table} {key}`")),
            None => *table = line.to_owned(),
        }
    }
    keys.dedup();
    if !code.is_empty() {
        *page += &format!("\n## {}\n", if keys.is_empty() { format!("`{table}`") } else { keys.join(", ") });
    }
    if !words.is_empty() {
        *page += &format!("\n{}\n", words.join("\n"));
    }
    if !code.is_empty() {
        *page += &format!("\n```toml\n{}\n```\n", code.join("\n"));
    }
    words.clear();
    code.clear();
}
