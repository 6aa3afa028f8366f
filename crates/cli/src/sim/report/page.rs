// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of a report: its head, its title, how it was made; and texts as HTML has them.

use std::path::Path;

use super::style;

/// A whole page around `body`.
pub(super) fn page(mark: &str, title: &str, body: &str) -> String {
    let title = escaped(title);
    let style = style::of_page();
    let version = env!("CARGO_PKG_VERSION");
    let made_by = escaped(&command_line(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned())));
    format!(
        "{mark}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
         <footer class=\"small\">\n<p>flashfront {version}: <code>{made_by}</code></p>\n</footer>\n</body>\n</html>\n"
    )
}

/// A text that means itself in HTML, inside of elements and of attributes in double quotes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The most letters of a file's name in a heading.
const NAME_MAX: usize = 44;

/// A path as an element: a long one without its middle, whole when one points at it.
pub(super) fn path(path: &str) -> String {
    let short = without_middle(path, NAME_MAX);
    if short == path { escaped(path) } else { format!("<span title=\"{}\">{}</span>", escaped(path), escaped(&short)) }
}

/// Shortens a path to at most this many letters. Letters in the middle are left out, and whole
/// folders if that will do.
fn without_middle(path: &str, most: usize) -> String {
    let letters: Vec<char> = path.chars().collect();
    if letters.len() <= most {
        return path.to_owned();
    }
    let room = most - 2;
    let name: Vec<char> = letters.rsplit(|it| *it == '/').next().unwrap_or_default().to_vec();
    // The first folder, and as many of the last ones as there is room for.
    let first = letters.iter().skip(1).position(|it| *it == '/').map_or(0, |at| at + 1);
    if first > 0 && first + name.len() < room {
        let cut = |from: &usize| letters[*from] == '/' && letters.len() - from <= room - first;
        let from = (first..letters.len()).find(cut).unwrap_or(letters.len() - name.len() - 1);
        return letters[..first].iter().chain(&['/', '…']).chain(&letters[from..]).collect();
    }
    let (head, tail) = (room / 2, room - room / 2);
    letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect()
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
    fn of_a_long_path_the_middle_is_left_out() {
        for (path, short) in [
            ("traces/a.trace", "traces/a.trace"),
            ("/srv/a/long/way/down/to/where/traces/are/a.trace", "/srv/…/down/to/where/traces/are/a.trace"),
            ("/srv/a/long/way/a-name-that-is-long.trace", "/srv/…/way/a-name-that-is-long.trace"),
            ("a-name-that-is-much-too-long-by-itself-for-that.trace", "a-name-that-is-much…self-for-that.trace"),
        ] {
            let found = without_middle(path, 40);
            assert!(found.chars().count() <= 40, "{found}");
            assert_eq!(found, short);
        }
        let long = "/srv/<a>/long/way/down/to/where/traces/are/kept/for/ever/a.trace";
        assert!(super::path(long).starts_with("<span title=\"/srv/&lt;a&gt;/long"), "{}", super::path(long));
    }

    #[test]
    fn a_name_is_no_markup() {
        let page = page("", "<script>\"&", "");
        assert!(page.contains("<title>&lt;script&gt;&quot;&amp;</title>") && !page.contains("<script>"));
    }
}
