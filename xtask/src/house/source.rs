// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the surroundings of one Rust source: the paths that it names, and its `impl`s.
//!
//! The crate syn parses the text. Test code says nothing here. Nothing is resolved here: `tree`
//! knows which file a path leads to.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree};

/// The names of modules from a crate's root down to one of them.
pub(super) type Module = Vec<String>;

/// A path as the source spells it, and the module in which it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spelled {
    pub(super) within: Module,
    pub(super) segments: Vec<String>,
}

/// An import: `use a::b as name`.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: Spelled,
    /// `None` if the import takes everything.
    pub(super) name: Option<String>,
}

/// The contents of a source.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Modules with their bodies in this file.
    pub(super) modules: Vec<Module>,
    /// Modules that exist in tests only.
    pub(super) tests: Vec<Module>,
    pub(super) imports: Vec<Import>,
    /// Paths in types, expressions, patterns and macros.
    pub(super) paths: Vec<Spelled>,
    /// Types and traits that are defined here.
    pub(super) types: Vec<(Module, String)>,
    /// The types that `impl` blocks are for.
    pub(super) impls: Vec<Spelled>,
}

impl Source {
    /// Reads the text of a file that holds `module`.
    pub(super) fn parse(text: &str, module: Module) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let mut reader = Reader { at: module, source: Self::default() };
        reader.visit_file(&file);
        Ok(reader.source)
    }
}

/// Walks through the syntax of a file.
struct Reader {
    at: Module,
    source: Source,
}

impl Reader {
    fn spelled(&self, segments: Vec<String>) -> Spelled {
        Spelled { within: self.at.clone(), segments }
    }

    fn below(&self, name: &syn::Ident) -> Module {
        let mut module = self.at.clone();
        module.push(text(name));
        module
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let (mut segments, name) = (before.to_vec(), |name: &syn::Ident| Some(text(name)));
        let name = match tree {
            UseTree::Path(path) => {
                segments.push(text(&path.ident));
                return self.import(&path.tree, &segments);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Glob(_) => None,
            // `use a::{self}` brings the name of `a`.
            UseTree::Name(last) if last.ident == "self" => before.last().cloned(),
            UseTree::Name(last) => {
                segments.push(text(&last.ident));
                name(&last.ident)
            }
            UseTree::Rename(last) => {
                segments.push(text(&last.ident));
                name(&last.rename)
            }
        };
        let path = self.spelled(segments);
        self.source.imports.push(Import { path, name });
    }

    /// Finds paths in the tokens of a macro: names with `::` between them.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons < 2 {
                        self.end_of_path(&mut path);
                    }
                    path.push(text(&ident));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_of_path(&mut path);
                    self.tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.end_of_path(&mut path),
            }
        }
        self.end_of_path(&mut path);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            let path = self.spelled(path);
            self.source.paths.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let defined = match item {
            Item::Struct(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        if is_for_tests(attributes(item)) {
            if let Item::Mod(module) = item {
                let module = self.below(&module.ident);
                self.source.tests.push(module);
            }
            return;
        }
        if let Some(name) = defined {
            self.source.types.push((self.at.clone(), text(name)));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            let module = self.below(&item.ident);
            let before = std::mem::replace(&mut self.at, module.clone());
            self.source.modules.push(module);
            visit::visit_item_mod(self, item);
            self.at = before;
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // `use ::name` is another crate's.
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[]);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let syn::Type::Path(of) = &*item.self_ty {
            let path = self.spelled(segments(&of.path));
            self.source.impls.push(path);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let spelled = self.spelled(segments(path));
            self.source.paths.push(spelled);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }

    // `pub(in super::super)` is no use of that module, and attributes are none of anything.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn text(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| text(&segment.ident)).collect()
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is left out of every build that is no test.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let cfg: String = list.tokens.to_string().split_whitespace().collect();
            cfg == "test" || (cfg.starts_with("all(") && cfg.contains("(test,"))
        }
        Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse(text, vec!["here".into()]).expect("the text is Rust")
    }

    fn paths(source: &Source) -> Vec<String> {
        source.paths.iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn imports_are_found_one_by_one_with_their_names() {
        let source = parse("use super::{a::{self, B}, c as d};\npub use x::*;\nuse ::std::fmt;\n");
        let found: Vec<_> = source.imports.iter().map(|it| (it.path.segments.join("::"), it.name.as_deref())).collect();
        let expected = [("super::a", Some("a")), ("super::a::B", Some("B")), ("super::c", Some("d")), ("x", None)];
        assert_eq!(found, expected.map(|(path, name)| (path.to_owned(), name)));
    }

    #[test]
    fn paths_are_found_in_types_code_and_macros() {
        let source = parse(
            "struct S(a::T);\nfn f() -> b::R { c::g(); if let d::E::V = x {} }\n\
             fn g() { assert!(e::h(1) && y, \"{}\", f::I) }\npub(in super::z) struct Z;\n",
        );
        assert_eq!(paths(&source), ["a::T", "b::R", "c::g", "d::E::V", "e::h", "f::I"]);
    }

    #[test]
    fn code_for_tests_says_nothing() {
        let source = parse(
            "#[cfg(test)]\nmod tests { use super::b; }\n#[cfg(test)]\nmod rig;\n#[cfg(test)]\nuse super::c;\n\
             #[cfg(all(test, feature = \"x\"))]\nfn f() { d::e() }\nimpl S { #[cfg(test)] fn g() { d::e() } }\n\
             #[cfg(not(test))]\nfn h() { kept::f() }\n",
        );
        assert!(source.imports.is_empty());
        assert_eq!(paths(&source), ["kept::f"]);
        assert_eq!(
            source.tests.iter().map(|module| module.join("::")).collect::<Vec<_>>(),
            ["here::tests", "here::rig"]
        );
    }

    #[test]
    fn a_module_with_its_body_here_is_where_its_paths_stand() {
        let source = parse("mod inner { use super::super::a; impl T {} }\nimpl<X> b::U<X> for V<X> {}\n");
        assert_eq!(source.modules, [["here", "inner"]]);
        assert_eq!(source.imports[0].path.within, ["here", "inner"]);
        let impls: Vec<_> = source.impls.iter().map(|path| path.segments.join("::")).collect();
        assert_eq!(impls, ["T", "V"]);
    }
}
