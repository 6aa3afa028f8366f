// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of the command and its verbs, made from the data of `--help`.

use std::io::Write as _;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Page;

/// The meanings of exit statuses; the daemon ends by the same rules.
const EXIT: [(&str, &str); 3] = [
    ("0", "Done."),
    ("1", "Not done, or damage was found."),
    ("2", "Wrong usage: of options, or of values in a file."),
];

/// A page for the command, and one for each verb and each verb of a verb.
pub(super) fn of_verbs(command: Command) -> anyhow::Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, &[], &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, words: &[String], pages: &mut Vec<Page>) -> anyhow::Result<()> {
    pages.push(page(command, words)?);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let words = [words, &[verb.get_name().to_owned()]].concat();
        add(verb, &words, pages)?;
    }
    Ok(())
}

fn page(command: &Command, words: &[String]) -> anyhow::Result<Page> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let source = format!("flashfront {}", command.get_version().unwrap_or_default());
    let man = Man::new(command.clone()).title(name.to_uppercase()).source(source).manual("Flashfront");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    if let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        examples(&help.to_string(), &mut roff);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT {
        roff.control("TP", []).text([bold(code)]).text([roman(meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut others = vec!["flashfront(1)".to_owned()];
    others.extend((words.len() > 1).then(|| format!("flashfront-{}(1)", words[..words.len() - 1].join("-"))));
    others.extend(neighbours(words).iter().map(|other| format!("flashfront-{other}(1)")));
    others.push("flashfront.toml(5)".to_owned());
    others.retain(|other| *other != format!("{name}(1)"));
    roff.text([roman(others.join(", "))]);
    write!(text, "{}", roff.to_roff())?;
    Ok(Page { words: words.to_vec(), name, section: 1, text: String::from_utf8(text)? })
}

/// Help behind the options, its lines as they are.
fn examples(help: &str, roff: &mut Roff) {
    roff.control("SH", ["EXAMPLES"]);
    let body = help.strip_prefix("Examples:\n").unwrap_or(help);
    roff.control("EX", []);
    for line in body.lines() {
        roff.text([roman(line)]);
    }
    roff.control("EE", []);
}

/// Verbs that people need beside this one.
fn neighbours(words: &[String]) -> &'static [&'static str] {
    match words.first().map(String::as_str) {
        None => &["try", "advise", "format", "serve"],
        Some("format") => &["serve", "detach"],
        Some("serve") => &["format", "status", "set", "drain"],
        Some("status" | "set" | "drain" | "mirror") => &["serve"],
        Some("detach" | "destage") => &["drain", "check"],
        Some("check" | "repair" | "dump") => &["check", "repair", "dump"],
        Some("advise" | "sim") => &["advise", "sim"],
        Some(_) => &[],
    }
}

/// The help of a verb, for terminals without man(1).
pub(super) fn plain(mut command: Command, words: &[String]) -> String {
    command.build();
    let mut found = &mut command;
    for word in words {
        if found.find_subcommand(word).is_none() {
            // The configuration file is no verb.
            return flashfront_serve::config::REFERENCE.to_owned();
        }
        found = found.find_subcommand_mut(word).expect("the verb was found a line above");
    }
    found.render_long_help().to_string()
}
