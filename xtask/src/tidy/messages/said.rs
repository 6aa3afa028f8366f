// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages that a Rust source can print: errors, their contexts, and warnings.
//!
//! Reads tokens, not meaning: a literal is a message because of the place that it stands in. These
//! places are `#[error(...)]`, `impl Display`, `MACROS`, `CALLS`, and closures that make a text.
//! Code of tests is left out, and so is what only a bug can print (`expect`, `assert!`). A message
//! that a function returns as a plain text is not seen, unless its file is one of the `SPEAKERS`.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The sign for each part of a message that is filled in when it is printed.
pub(super) const PART: char = '…';

/// A text that can be printed, and the line that it is written in.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Said {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Macros whose first literal is a message.
const MACROS: &[&str] = &["anyhow", "bail", "ensure", "eprintln", "error", "misused", "warn"];

/// Functions and variants: each literal in their parentheses is a message, or a part of one.
const CALLS: &[&str] = &[
    "Err",
    "InvalidOperation",
    "Refusal",
    "Refused",
    "Usage",
    "context",
    "custom",
    "failed",
    "map_err",
    "ok_or",
    "ok_or_else",
    "other",
    "with_context",
    "wrong",
];

/// Macros and functions whose words only a bug shows, or no user.
const UNSAID: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug",
    "debug_assert",
    "debug_assert_eq",
    "expect",
    "expect_err",
    "info",
    "panic",
    "trace",
    "unreachable",
];

/// The messages of a source. With `all`, each literal of four words and more is one, wherever it
/// stands.
pub(super) fn in_source(text: &str, all: bool) -> Result<Vec<Said>, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("is no Rust source: {error}"))?;
    let mut said = Vec::new();
    walk(tokens.clone(), false, &mut said);
    if all {
        let mut more = Vec::new();
        walk(tokens, true, &mut more);
        said.extend(more.into_iter().filter(|it| is_sentence(&it.text)));
        said.sort();
        said.dedup();
    }
    Ok(said)
}

fn walk(tokens: TokenStream, all: bool, said: &mut Vec<Said>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        at += 1;
        match token {
            TokenTree::Punct(it) if it.as_char() == '#' => {
                let attribute = tokens[at..].iter().position(|it| matches!(it, TokenTree::Group(_)));
                let Some((attribute, next)) = attribute.and_then(|it| Some((group(&tokens[at + it])?, at + it + 1)))
                else {
                    continue;
                };
                at = next;
                let inside: Vec<TokenTree> = attribute.stream().into_iter().collect();
                match inside.as_slice() {
                    [TokenTree::Ident(name), TokenTree::Group(args), ..] if name == "error" => {
                        said.extend(first(args));
                    }
                    [TokenTree::Ident(name), TokenTree::Group(args), ..]
                        if name == "cfg" && args.stream().into_iter().any(|it| it.to_string() == "test") =>
                    {
                        at += item(&tokens[at..]);
                    }
                    [TokenTree::Ident(name)] if name == "test" => at += item(&tokens[at..]),
                    _ => {}
                }
            }
            TokenTree::Ident(name) => {
                let is_macro = matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == '!');
                let args = tokens.get(at + usize::from(is_macro)).and_then(group);
                let name = name.to_string();
                if name == "impl" {
                    if let Some((shown, next)) = display(&tokens[at..]) {
                        walk(shown.stream(), true, said);
                        at += next;
                    }
                } else if let Some(args) = args {
                    let defined = matches!(before, Some(TokenTree::Ident(it)) if it == "fn");
                    let new_error = name == "new" && follows_error(&tokens[..at - 1]);
                    let next = at + usize::from(is_macro) + 1;
                    if UNSAID.contains(&name.as_str()) && !defined {
                        at = next;
                    } else if is_macro && MACROS.contains(&name.as_str()) {
                        said.extend(first(args));
                        walk(without_first(args), all, said);
                        at = next;
                    } else if !is_macro && !defined && (new_error || CALLS.contains(&name.as_str())) {
                        walk(args.stream(), true, said);
                        at = next;
                    }
                }
            }
            TokenTree::Punct(it) if it.as_char() == '|' && before.is_some_and(|it| it.to_string() == "|") => {
                said.extend(made(&tokens[at..]).filter(|it| !all && is_sentence(&it.text)));
            }
            TokenTree::Group(inner) => walk(inner.stream(), all, said),
            TokenTree::Literal(literal) if all => {
                let text = text_of(&literal.to_string());
                said.extend(
                    text.filter(|it| is_words(it)).map(|text| Said { line: literal.span().start().line, text }),
                );
            }
            _ => {}
        }
    }
}

fn group(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) => Some(group),
        _ => None,
    }
}

/// How many tokens the item is long that begins here: to its braces, or to its semicolon.
fn item(tokens: &[TokenTree]) -> usize {
    let end = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(it) => it.as_char() == ';',
        _ => false,
    });
    end.map_or(tokens.len(), |end| end + 1)
}

/// The body of an `impl Display for ...`, and how many tokens of `tokens` end with it.
fn display(tokens: &[TokenTree]) -> Option<(&Group, usize)> {
    let body = tokens.iter().position(|token| group(token).is_some_and(|it| it.delimiter() == Delimiter::Brace))?;
    let mut head = tokens[..body].iter().map(ToString::to_string);
    (head.any(|it| it == "Display") && head.any(|it| it == "for")).then_some(())?;
    Some((group(&tokens[body])?, body + 1))
}

/// Reads a closure without arguments that makes a literal, or `format!(...)`; these are its first
/// tokens.
///
/// Such a closure is for `with_context` and the like, and may have a name before.
fn made(tokens: &[TokenTree]) -> Option<Said> {
    match tokens {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Group(args), ..] if name == "format" => first(args),
        [literal @ TokenTree::Literal(_), ..] => {
            first(&Group::new(Delimiter::Parenthesis, TokenStream::from(literal.clone())))
        }
        _ => None,
    }
}

/// Whether the tokens end with `Error::`, as before `new`.
fn follows_error(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [.., TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Punct(_)] if name == "Error")
}

/// The first literal of a macro's arguments.
fn first(args: &Group) -> Option<Said> {
    let literal = args.stream().into_iter().find_map(|token| match token {
        TokenTree::Literal(it) => Some(it),
        _ => None,
    })?;
    let text = text_of(&literal.to_string()).filter(|it| is_words(it))?;
    Some(Said { line: literal.span().start().line, text })
}

/// The arguments of a macro without its first literal.
fn without_first(args: &Group) -> TokenStream {
    let mut gone = false;
    let others = args.stream().into_iter().filter(|token| {
        gone || {
            gone = matches!(token, TokenTree::Literal(_));
            !gone
        }
    });
    others.collect()
}

/// Whether a user could look for the text: it has two words beside the parts that are filled in.
fn is_words(text: &str) -> bool {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count() >= 2
}

/// Whether the text is too long for a name.
fn is_sentence(text: &str) -> bool {
    text.split(' ').count() >= 4
}

/// Returns the text that a string literal of Rust prints, with [`PART`] for parts that are filled
/// in; None for other literals.
fn text_of(literal: &str) -> Option<String> {
    let plain = match literal.strip_prefix('r') {
        Some(raw) => raw.trim_matches('#').strip_prefix('"')?.strip_suffix('"')?.to_owned(),
        None => unescaped(literal.strip_prefix('"')?.strip_suffix('"')?),
    };
    Some(with_parts(&plain))
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some('n' | 't' | 'r')) => {
                letters.next();
                plain.push(' ');
            }
            ('\\', Some('\n')) => while letters.next_if(|it| it.is_whitespace()).is_some() {},
            ('\\', Some(_)) => plain.extend(letters.next()),
            _ => plain.push(letter),
        }
    }
    plain
}

/// The text of a format string on one line, with [`PART`] for each `{...}`.
fn with_parts(format: &str) -> String {
    let mut text = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '{' | '}' if letters.next_if_eq(&letter).is_some() => text.push(letter),
            '{' => {
                letters.by_ref().find(|it| *it == '}');
                text.push(PART);
            }
            _ => text.push(letter),
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        in_source(source, false).expect("it is Rust").into_iter().map(|said| said.text).collect()
    }

    #[test]
    fn messages_are_found_where_they_are_said() {
        let said = [
            r#"enum E { #[error("{path} is {}: no \"cache\"", 1)] A, #[error(transparent)] B }"#,
            r#"fn f() { bail!("the {what} is gone") }"#,
            r#"fn f() { tracing::warn!(target: T, "a long \
                line of {}", x) }"#,
            r#"fn f() { x.with_context(|| format!("can't read {}", p))? }"#,
            r#"fn f() { Err(io::Error::new(kind, "it is damaged")) }"#,
            r#"fn f() { let wrong = || format!("write {it}:FAULTS or none"); let why = || "it has no size"; }"#,
            r#"impl fmt::Display for E { fn fmt(&self) { write!(f, "damaged {{x}} at {at}") } }"#,
        ];
        let expected = [
            "… is …: no \"cache\"",
            "the … is gone",
            "a long line of …",
            "can't read …",
            "it is damaged",
            "write …:FAULTS or none",
            "it has no size",
            "damaged {x} at …",
        ];
        assert_eq!(said.map(texts).concat(), expected);
    }

    #[test]
    fn what_is_no_message_is_left_out() {
        let unsaid = [
            r#"fn f() { x.expect("it was checked before") }"#,
            r#"fn f() { info!("all is well"); assert!(x, "it was not"); }"#,
            r#"#[cfg(test)] mod tests { fn f() { bail!("never seen") } }"#,
            r#"#[test] fn f() { bail!("never seen") }"#,
            r#"#[error("{path}: {error}")] struct E;"#,
            r#"impl Debug for E { fn fmt() { write!(f, "two words") } }"#,
            r#"fn error() { println!("two words") }"#,
        ];
        assert_eq!(unsaid.map(texts).concat(), Vec::<String>::new());
    }
}
