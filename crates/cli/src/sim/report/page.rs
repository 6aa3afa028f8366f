// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of a report: how it looks, and how it was made.

use std::path::Path;

/// Dark on white, also for who prefers it dark: the colours of the lines are chosen for white, and it can be printed.
const STYLE: &str = "
:root { color-scheme: light; }
body { background: #fff; color: #1a1a1a; font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;
  max-width: 920px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.7em; margin: 0 0 .3em; } h2 { font-size: 1.25em; margin: 2.2em 0 .3em; overflow-wrap: anywhere; }
h3 { font-size: 1.02em; margin: 1.4em 0 .2em; }
p { margin: .5em 0; } .small { color: #444; font-size: .87em; }
code { font: .9em ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere; }
a { color: #0b5394; }
.panels { display: flex; flex-wrap: wrap; gap: 12px 20px; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font: 11.5px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1a1a1a; }
svg .heading { font-size: 13.5px; font-weight: 600; } svg .minor { fill: #555; } svg .ours { font-weight: 700; }
svg .grid { stroke: #e4e4e4; } svg .axis { stroke: #777; } svg .leader { stroke: #aaa; stroke-width: .8; }
svg .front { stroke: #dcdcdc; stroke-width: 4; fill: none; stroke-linejoin: round; }
svg .guide { stroke: #555; stroke-dasharray: 6 4; }
svg .series:hover .line { stroke-width: 4.5; } svg .series:hover text { font-weight: 700; }
table { border-collapse: collapse; font-size: .84em; font-variant-numeric: tabular-nums; margin: .8em 0; }
th, td { padding: .14em .6em; text-align: right; white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; } thead th { border-bottom: 2px solid #777; }
.name { text-align: left; } tbody { border-bottom: 1px solid #bbb; } tr.ours td { background: #fdeee2; font-weight: 600; }
td.best { text-decoration: underline; text-decoration-thickness: 2px; text-underline-offset: 3px; }
.wide { overflow-x: auto; }
footer { margin-top: 3em; border-top: 1px solid #bbb; padding-top: .6em; }
@media print { body { margin: 0; } .panels, table, svg { break-inside: avoid; } }
";

/// What of the style is for pictures, for one that stands alone.
pub(super) fn picture_style() -> String {
    let rules = STYLE.split_inclusive('}').filter(|rule| rule.trim_start().starts_with("svg ."));
    let rules = rules.chain(STYLE.split_inclusive('}').filter(|rule| rule.trim_start().starts_with("svg text")));
    rules.map(|rule| rule.trim_start().trim_start_matches("svg ").to_owned() + "\n").collect()
}

/// A whole page around `body`.
pub(super) fn page(mark: &str, title: &str, body: &str) -> String {
    let title = escaped(title);
    let version = env!("CARGO_PKG_VERSION");
    let made_by = escaped(&command_line(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned())));
    format!(
        "{mark}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
         <footer class=\"small\">\n<p>flashfront {version}: <code>{made_by}</code></p>\n</footer>\n</body>\n</html>\n"
    )
}

/// A text that means itself in HTML, inside of elements and of attributes in double quotes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// How the program was called, so that a shell understands it; the program itself without its path.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let plain = |it: &String| !it.is_empty() && it.chars().all(|c| c.is_alphanumeric() || "-_./,:=@%+".contains(c));
    let quoted = |it: String| if plain(&it) { it } else { format!("'{}'", it.replace('\'', "'\\''")) };
    let program = |it: String| match Path::new(&it).file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => it,
    };
    let words = arguments.enumerate().map(|(nth, word)| quoted(if nth == 0 { program(word) } else { word }));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_understands_the_command_line() {
        let words = ["/usr/bin/flashfront", "sim", "my trace", "it's", "", "--x=0.1,2"].map(str::to_owned);
        assert_eq!(command_line(words.into_iter()), r"flashfront sim 'my trace' 'it'\''s' '' --x=0.1,2");
    }

    #[test]
    fn a_name_is_no_markup() {
        let page = page("", "<script>\"&", "");
        assert!(page.contains("<title>&lt;script&gt;&quot;&amp;</title>") && !page.contains("<script>"));
    }
}
