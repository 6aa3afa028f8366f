// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules of one crate: which file holds each, and which file a path leads to.
//!
//! A path leads to the file of the last module that it names. So `super::log::Log` leads to the
//! file of `log`. `super::Log` leads to the file of the module above, even if that only exports
//! the name again: this export is an arrow of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Module, Source, Spelled};

/// Names that stand for other names are followed so often. Real code needs two or three.
const DEPTH_MAX: usize = 16;

/// A type of the crate: the file and the module with its definition, and its name.
pub(super) type TypeName = (usize, Module, String);

/// The files of a crate without its tests.
pub(super) struct Tree {
    /// Paths of the files, and what they say.
    files: Vec<(String, Source)>,
    modules: BTreeMap<Module, usize>,
}

impl Tree {
    /// Puts together the files of a crate, each with its path below `src/` and its text.
    pub(super) fn new<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut files = Vec::new();
        for (path, text) in texts {
            let module = module_of(path);
            let source = Source::parse(text, module.clone()).map_err(|error| format!("{path}: {error}"))?;
            files.push((path.to_owned(), module, source));
        }
        let tests: BTreeSet<Module> = files.iter().flat_map(|(_, _, source)| source.tests.iter().cloned()).collect();
        files.retain(|(_, module, _)| !(0..=module.len()).any(|len| tests.contains(&module[..len])));
        let mut modules = BTreeMap::new();
        for (number, (_, module, source)) in files.iter().enumerate() {
            modules.insert(module.clone(), number);
            modules.extend(source.modules.iter().map(|inner| (inner.clone(), number)));
        }
        Ok(Self { files: files.into_iter().map(|(path, _, source)| (path, source)).collect(), modules })
    }

    /// The paths of the files below `src/`; files that are only for tests are not among them.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(path, _)| path.as_str())
    }

    /// The files that each file names.
    pub(super) fn arrows(&self) -> Vec<Vec<usize>> {
        let arrows = self.files.iter().enumerate().map(|(from, (_, source))| {
            let paths = source.imports.iter().map(|import| &import.path).chain(&source.paths);
            let to: BTreeSet<usize> = paths.filter_map(|path| self.file_of(path)).filter(|&to| to != from).collect();
            to.into_iter().collect()
        });
        arrows.collect()
    }

    /// The paths in `from` that lead to `to`, as they are spelled.
    pub(super) fn why(&self, from: usize, to: usize) -> BTreeSet<String> {
        let source = &self.files[from].1;
        let paths = source.imports.iter().map(|import| &import.path).chain(&source.paths);
        paths.filter(|path| self.file_of(path) == Some(to)).map(|path| path.segments.join("::")).collect()
    }

    /// The files with an `impl` for each type of the crate.
    pub(super) fn impls(&self) -> BTreeMap<TypeName, BTreeSet<usize>> {
        let mut found: BTreeMap<TypeName, BTreeSet<usize>> = BTreeMap::new();
        for (number, (_, source)) in self.files.iter().enumerate() {
            for of in source.impls.iter().filter_map(|path| self.type_of(path, DEPTH_MAX)) {
                found.entry(of).or_default().insert(number);
            }
        }
        found
    }

    fn file_of(&self, path: &Spelled) -> Option<usize> {
        let (module, _) = self.resolve(path, DEPTH_MAX)?;
        self.modules.get(&module).copied()
    }

    /// The last module of the crate that a path names, and the rest of the path.
    fn resolve<'a>(&self, path: &'a Spelled, depth: usize) -> Option<(Module, &'a [String])> {
        let (first, mut rest) = path.segments.split_first()?;
        let mut module = path.within.clone();
        match first.as_str() {
            "crate" => module.clear(),
            "self" => {}
            "super" => drop(module.pop()?),
            name => module = self.named(&path.within, name, depth)?,
        }
        while let Some((next, after)) = rest.split_first() {
            if next == "super" {
                module.pop()?;
            } else if self.modules.contains_key(&below(&module, next)) {
                module.push(next.clone());
            } else {
                break;
            }
            rest = after;
        }
        Some((module, rest))
    }

    /// The module that a name means in a module: one below it, or an imported one.
    ///
    /// An imported type has no modules below it: there the module with the type is meant.
    fn named(&self, within: &Module, name: &str, depth: usize) -> Option<Module> {
        let child = below(within, name);
        if self.modules.contains_key(&child) {
            return Some(child);
        }
        let source = &self.files[*self.modules.get(within)?].1;
        let is_it = |import: &&super::source::Import| {
            import.name.as_deref() == Some(name) && import.path.within == *within && import.path.segments[0] != name
        };
        let import = source.imports.iter().find(is_it)?;
        Some(self.resolve(&import.path, depth.checked_sub(1)?)?.0)
    }

    /// The type of the crate that a path means.
    fn type_of(&self, path: &Spelled, depth: usize) -> Option<TypeName> {
        let depth = depth.checked_sub(1)?;
        let (module, name) = match path.segments.as_slice() {
            [name] => (path.within.clone(), name.clone()),
            [.., _] => {
                let (module, rest) = self.resolve(path, depth)?;
                let [name] = rest else { return None };
                (module, name.clone())
            }
            [] => return None,
        };
        let file = *self.modules.get(&module)?;
        let source = &self.files[file].1;
        if source.types.iter().any(|(within, defined)| *within == module && *defined == name) {
            return Some((file, module, name));
        }
        let here = source.imports.iter().filter(|import| import.path.within == module);
        let named = here.clone().find(|import| import.name.as_ref() == Some(&name));
        if let Some(import) = named {
            return self.type_of(&import.path, depth);
        }
        here.filter(|import| import.name.is_none()).find_map(|import| {
            let mut path = import.path.clone();
            path.segments.push(name.clone());
            self.type_of(&path, depth)
        })
    }
}

fn below(module: &[String], name: &str) -> Module {
    let mut module = module.to_vec();
    module.push(name.to_owned());
    module
}

/// The module that a file below `src/` holds.
fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" || path == "main" { Module::new() } else { path.split('/').map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::circles::circles;
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::new(files.iter().copied()).expect("the texts are Rust")
    }

    /// The largest circle, as paths.
    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let tree = tree(files);
        let paths: Vec<&str> = tree.paths().collect();
        let largest = circles(&tree.arrows()).into_iter().next().unwrap_or_default();
        largest.into_iter().map(|file| paths[file].to_owned()).collect()
    }

    #[test]
    fn a_circle_of_three_modules_is_found() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f() -> super::c::C { todo() }"),
            ("c.rs", "pub struct C; fn f() { g!(x, crate::a::A) }"),
            ("d.rs", "use super::{a::A, b::B, c::C};"),
        ];
        assert_eq!(circle(&files), ["a.rs", "b.rs", "c.rs"]);
    }

    #[test]
    fn declared_modules_are_no_arrows_but_exports_are() {
        let declared = [("lib.rs", "pub mod a;"), ("a.rs", "use crate::X;")];
        assert_eq!(circle(&declared), Vec::<String>::new());
        let exported = [("lib.rs", "mod a; pub use a::A; pub struct X;"), ("a.rs", "pub struct A; use crate::X;")];
        assert_eq!(circle(&exported), ["lib.rs", "a.rs"]);
    }

    #[test]
    fn a_folder_with_mod_rs_and_a_file_beside_a_folder_are_the_same() {
        let files =
            [("lib.rs", ""), ("a/mod.rs", "use b::B;"), ("a/b.rs", "use super::super::c;"), ("c.rs", "use crate::a;")];
        assert_eq!(circle(&files), ["a/mod.rs", "a/b.rs", "c.rs"]);
        let files = [("lib.rs", ""), ("a.rs", "use self::b::B;"), ("a/b.rs", "use super::X;")];
        assert_eq!(circle(&files), ["a.rs", "a/b.rs"]);
    }

    #[test]
    fn an_imported_module_is_followed() {
        let files = [
            ("lib.rs", ""),
            ("a.rs", "use super::b; fn f() { b::c::g() }"),
            ("b.rs", "pub mod c;"),
            ("b/c.rs", "use crate::a;"),
        ];
        assert_eq!(circle(&files), ["a.rs", "b/c.rs"]);
    }

    #[test]
    fn tests_draw_no_arrows() {
        let files = [
            ("lib.rs", "#[cfg(test)] mod rig; mod a;"),
            ("rig.rs", "use crate::a::A;"),
            ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::rig; use crate::b; }"),
            ("b.rs", "use crate::a::A;"),
        ];
        assert_eq!(circle(&files), Vec::<String>::new());
        assert_eq!(tree(&files).paths().collect::<Vec<_>>(), ["lib.rs", "a.rs", "b.rs"]);
    }

    #[test]
    fn a_type_is_spread_over_the_files_with_its_impls() {
        let files = [
            ("lib.rs", "mod a; pub use a::Lane;"),
            ("a.rs", "pub struct Lane; impl Lane {}"),
            ("b.rs", "use super::Lane; impl Lane {} impl Drop for Lane {}"),
            ("c.rs", "use crate::a::*; impl Lane {}"),
            ("d.rs", "struct Lane; impl Lane {}"),
            ("e.rs", "impl Iterator for super::a::Lane {} impl From<u8> for u64 {}"),
        ];
        let impls = tree(&files).impls();
        let found: Vec<_> =
            impls.iter().map(|((_, module, name), files)| (module.join("::"), name, files.len())).collect();
        let lane = "Lane".to_owned();
        assert_eq!(found, [("a".to_owned(), &lane, 4), ("d".to_owned(), &lane, 1)]);
    }
}
