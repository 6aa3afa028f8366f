// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts the lines of a job file into sections, each with all that holds for it.

use super::FioError;
use super::options::{Options, Taken, without_value};

/// A section with the `[global]`s before it.
pub(super) struct Section {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) options: Options,
}

/// The sections that the lines make up.
pub(super) struct Sections {
    pub(super) sections: Vec<Section>,
    /// Options without effect here, each once.
    pub(super) without_effect: Vec<String>,
    /// Options that are left out, each once.
    pub(super) left_out: Vec<String>,
}

/// A line without its comment and the blanks around it. fio cuts a line at the first `;` or `#`,
/// wherever that stands.
pub(super) fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default().trim()
}

/// Reads the lines. Percents are of `volume_bytes`; `variable` knows what `${NAME}` stands for.
pub(super) fn read(
    text: &str,
    volume_bytes: u64,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Sections, FioError> {
    let mut global = Options::new(volume_bytes);
    let mut read = Sections { sections: Vec::new(), without_effect: Vec::new(), left_out: Vec::new() };
    let mut in_global = false;
    let lines: Vec<&str> = text.lines().map(without_comment).collect();
    for (at, content) in lines.iter().enumerate() {
        let line = at + 1;
        let error = |about: String, what: &str| FioError { line, about, what: what.to_owned() };
        if content.is_empty() {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            let name = name.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| error(format!("`{content}`"), "a section is written `[NAME]`"))?;
            in_global = name == "global";
            let options = if in_global {
                &mut global
            } else {
                read.sections.push(Section { line, name: name.to_owned(), options: global.clone() });
                &mut read.sections.last_mut().expect("it was pushed").options
            };
            // It holds for the sizes before it too.
            let own = lines[line..].iter().take_while(|it| !it.starts_with('['));
            for (key, value) in own.filter_map(|it| it.split_once('=')).filter(|it| it.0.trim() == "kb_base") {
                // A wrong one is told at its line.
                let _ = options.take(key.trim(), value.trim());
            }
            continue;
        }
        let (key, value) = content.split_once('=').map_or((*content, ""), |(key, value)| (key.trim(), value.trim()));
        let about = format!("`{key}`");
        if key.starts_with("include ") {
            return Err(error("`include`".to_owned(), "unknown here; write its options into this file"));
        }
        let options = match read.sections.last_mut() {
            _ if in_global => &mut global,
            Some(section) => &mut section.options,
            None => return Err(error(about, "it is in no section; `[global]` or `[NAME]` begins one")),
        };
        let taken = match without_value(key) {
            Some(taken) => taken,
            None => {
                let value = replace(value, variable).map_err(|name| {
                    let what = format!("the variable {name} is not set; set it, as in `{name}=... flashfront ...`");
                    error(about.clone(), &what)
                })?;
                options.take(key, &value).map_err(|what| error(about, &what))?
            }
        };
        let list = match taken {
            Taken::Meant => continue,
            Taken::NoEffect => &mut read.without_effect,
            Taken::LeftOut => &mut read.left_out,
        };
        if !list.iter().any(|it| it == key) {
            list.push(key.to_owned());
        }
    }
    Ok(read)
}

/// A value with its variables replaced; or the name of one that is not set.
fn replace(value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut replaced = String::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once("${") {
        let (name, after) = behind.split_once('}').ok_or_else(|| behind.to_owned())?;
        replaced.push_str(before);
        replaced.push_str(&variable(name).ok_or_else(|| name.to_owned())?);
        rest = after;
    }
    replaced.push_str(rest);
    Ok(replaced)
}
