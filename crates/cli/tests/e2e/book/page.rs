// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of the book as a list of blocks. Knows nothing of how a block is run.

/// A comment that readers don't see has the commands that another page told them to run.
const BEFORE: &str = "<!-- before: ";

/// What a block is, by the first word behind its fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Commands.
    Shell,
    /// Commands that would change the machine itself. No session runs them.
    Elsewhere,
    /// A configuration file of the daemon, or a part of one.
    Toml,
    /// Elements of a domain of libvirt.
    Xml,
    /// A unit of systemd.
    Unit,
    /// A configuration of Prometheus.
    Yaml,
}

/// A block between two fences.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// The line of its fence, from 1.
    pub(super) line: usize,
    pub(super) text: String,
    /// What a machine must have for it: programs, paths, or `root`.
    pub(super) needs: Vec<String>,
    /// Lines that it prints, in their order; `...` stands for anything.
    pub(super) prints: Vec<String>,
}

/// All blocks of a page, in their order.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) path: String,
    pub(super) blocks: Vec<Block>,
}

impl Page {
    /// Reads a page. A block of an unknown kind is refused, since it would not be tested.
    pub(super) fn parse(path: &str, text: &str) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        let mut lines = (1..).zip(text.lines());
        while let Some((line, fence)) = lines.next() {
            if let Some(commands) = fence.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(" -->")) {
                let text = format!("{commands}\n");
                // A daemon in the background is waited for.
                let prints = if commands.ends_with('&') { vec!["ready ...".to_owned()] } else { Vec::new() };
                blocks.push(Block { kind: Kind::Shell, line, text, needs: Vec::new(), prints });
                continue;
            }
            let Some(info) = fence.trim_start().strip_prefix("```") else { continue };
            let content = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim_start() != "```");
            let content: Vec<&str> = content.collect();
            let mut words = info.split_whitespace();
            let kind = match words.next() {
                Some("sh") if words.clone().next() == Some("elsewhere") => {
                    words.next();
                    Kind::Elsewhere
                }
                Some("sh") => Kind::Shell,
                Some("toml") => Kind::Toml,
                Some("xml") => Kind::Xml,
                Some("ini") => Kind::Unit,
                Some("yaml") => Kind::Yaml,
                Some("text") if words.clone().next() == Some("drawing") => continue,
                Some("text") => {
                    let before = blocks.last_mut().filter(|block| block.kind == Kind::Shell && block.prints.is_empty());
                    let before = before.unwrap_or_else(|| panic!("{path}:{line}: no sh block prints this"));
                    before.prints =
                        content.into_iter().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
                    continue;
                }
                kind => {
                    panic!("{path}:{line}: {kind:?} is no kind of block: sh, text, text drawing, toml, xml, ini, yaml")
                }
            };
            let needs = words.map(|word| {
                word.strip_prefix("needs=").unwrap_or_else(|| panic!("{path}:{line}: `{word}` is not `needs=...`"))
            });
            let needs = needs.flat_map(|needs| needs.split(',')).map(str::to_owned).collect();
            blocks.push(Block { kind, line, text: content.join("\n") + "\n", needs, prints: Vec::new() });
        }
        Self { path: path.to_owned(), blocks }
    }
}
