//! The items of a crate that a user can name, and those that he meets beyond that.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;

use syn::{Item, ItemImpl, Type};

use crate::sources::{Namespace, Sources, defined, is_public};
use crate::text::Text;

/// The text of the public API of the crate `name`: its items, and below them those of `others` that it mentions.
pub fn api(sources: &Sources, name: &str, others: &[&str]) -> String {
    let mut names = BTreeMap::new();
    walk(sources, name, name, &mut names);
    let mut shown: BTreeSet<String> = names.keys().cloned().collect();
    // What the crate does not show is called as its own crate does.
    for other in others {
        let mut theirs = BTreeMap::new();
        walk(sources, other, other, &mut theirs);
        for (definition, paths) in theirs {
            names.entry(definition).or_insert_with(|| paths.into_iter().take(1).collect());
        }
    }
    let surface = Surface { sources, names, implementations: implementations(sources) };
    // Until nothing is mentioned that is not shown.
    loop {
        let (modules, mentioned) = surface.show(&shown);
        if mentioned.is_subset(&shown) {
            let is_own = |module: &str| module.split("::").next() == Some(name);
            let (own, beyond) = modules.iter().partition(|(module, _)| is_own(module));
            return text_of(own)
                + "\n# What the above mentions and does not name\n"
                + &text_of(beyond);
        }
        shown.extend(mentioned);
    }
}

/// The lines of items, by their names, by the paths of their modules.
type Modules = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn text_of(modules: BTreeMap<&String, &BTreeMap<String, Vec<String>>>) -> String {
    let mut text = String::new();
    for (module, items) in modules {
        text += &format!("\nmod {module}\n");
        for line in items.values().flatten() {
            text += &format!("    {line}\n");
        }
    }
    text
}

/// Everything public in a module and below it: where it is defined, and by which paths it is reached.
fn walk(sources: &Sources, module: &str, path: &str, names: &mut BTreeMap<String, BTreeSet<Path>>) {
    let Some(inside) = sources.module(module) else { return };
    let items = inside.items.iter().filter(|item| is_public(item)).filter_map(defined);
    let items = items.map(|(name, _)| (format!("{module}::{name}"), name));
    let uses = inside.uses.iter().filter(|used| used.is_public).flat_map(|used| {
        let found = sources.shown_by(module, used);
        found.into_iter().map(|definition| (definition, used.name.clone()))
    });
    for (definition, name) in items.chain(uses) {
        let path = format!("{path}::{name}");
        walk(sources, &definition, &path, names);
        let length = path.split("::").count();
        names.entry(definition).or_default().insert((length, path));
    }
}

/// A path after its length: the shortest comes first.
type Path = (usize, String);

/// Where an implementation stands.
type Implementation<'a> = (&'a str, &'a ItemImpl);

/// All implementations, by what they are for.
fn implementations(sources: &Sources) -> BTreeMap<String, Vec<Implementation<'_>>> {
    let mut all: BTreeMap<String, Vec<Implementation<'_>>> = BTreeMap::new();
    for (module, inside) in sources.modules() {
        for item in &inside.items {
            let Item::Impl(item) = item else { continue };
            let (is_whole, path) = subject(item);
            let definition = path.and_then(|path| sources.resolve(module, &path, Namespace::Types));
            let definition = definition.filter(|found| sources.item(found).is_some());
            // What another crate's type can do stands with the type that is given, or with the trait.
            let with = definition.or_else(|| {
                assert!(is_whole || item.trait_.is_some());
                given(sources, module, item)
            });
            if let Some(with) = with {
                all.entry(with).or_default().push((module, item));
            }
        }
    }
    all
}

/// The type that an implementation is for, and whether it is not only borrowed.
fn subject(item: &ItemImpl) -> (bool, Option<Vec<String>>) {
    let (is_whole, named) = match &*item.self_ty {
        Type::Reference(reference) => (false, &*reference.elem),
        named => (true, named),
    };
    let Type::Path(named) = named else { return (is_whole, None) };
    (is_whole, Some(segments(&named.path)))
}

/// Of an implementation for another crate's type: the type that the trait is given, or the trait.
fn given(sources: &Sources, module: &str, item: &ItemImpl) -> Option<String> {
    let (_, path, _) = item.trait_.as_ref()?;
    let last = path.segments.last()?;
    let arguments = match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    let given = arguments.into_iter().flatten().filter_map(|argument| match argument {
        syn::GenericArgument::Type(Type::Path(given)) => Some(segments(&given.path)),
        _ => None,
    });
    let candidates = given.chain(once(segments(path)));
    let mut found = candidates.filter_map(|path| sources.resolve(module, &path, Namespace::Types));
    found.find(|definition| sources.item(definition).is_some())
}

/// A path as words; the first is empty if it begins with `::`.
pub fn segments(path: &syn::Path) -> Vec<String> {
    let start = path.leading_colon.map(|_| String::new());
    start.into_iter().chain(path.segments.iter().map(|one| one.ident.to_string())).collect()
}

pub struct Surface<'a> {
    sources: &'a Sources,
    names: BTreeMap<String, BTreeSet<Path>>,
    implementations: BTreeMap<String, Vec<Implementation<'a>>>,
}

impl Surface<'_> {
    /// Returns the name of a definition: the shortest path by which it is reached.
    pub fn name(&self, definition: &str) -> String {
        let shortest = self.names.get(definition).and_then(BTreeSet::first);
        shortest.map_or_else(|| definition.to_owned(), |(_, path)| path.clone())
    }

    /// The lines of these definitions, and the definitions that they mention.
    fn show(&self, shown: &BTreeSet<String>) -> (Modules, BTreeSet<String>) {
        let mentioned = RefCell::new(BTreeSet::new());
        let mut modules = Modules::new();
        for definition in shown {
            let Some(item) = self.sources.item(definition) else {
                assert!(self.sources.module(definition).is_some(), "{definition} is foreign");
                continue;
            };
            let within = definition.rsplit_once("::").expect("an item is in a module").0;
            let text = self.text(within, &mentioned);
            let name = self.name(definition);
            let mut lines = text.item(item);
            lines.extend(self.abilities(definition, text.derived(item), shown, &mentioned));
            put(&mut modules, &name, lines);
            let again = self.names.get(definition).into_iter().flatten().skip(1);
            for (_, path) in again {
                let own = |path: &str| path.rsplit("::").next().map(str::to_owned);
                let renamed = own(path).filter(|again| own(&name).as_ref() != Some(again));
                let renamed = renamed.map_or(String::new(), |again| format!(" as {again}"));
                put(&mut modules, path, vec![format!("pub use {name}{renamed}")]);
            }
        }
        (modules, mentioned.into_inner())
    }

    fn text<'a>(&'a self, module: &'a str, mentioned: &'a RefCell<BTreeSet<String>>) -> Text<'a> {
        Text { surface: self, sources: self.sources, module, mentioned }
    }

    /// Functions and traits of a type, indented. `traits` are those that it derives.
    fn abilities(
        &self,
        definition: &str,
        mut traits: BTreeSet<String>,
        shown: &BTreeSet<String>,
        mentioned: &RefCell<BTreeSet<String>>,
    ) -> Vec<String> {
        // By what stands before them: nothing, or which parameters they are for.
        let mut functions: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut longer = BTreeSet::new();
        for (module, item) in self.implementations.get(definition).into_iter().flatten() {
            let Some((_, path, _)) = &item.trait_ else {
                let (head, own) = self.text(module, mentioned).own(item);
                functions.entry(head).or_default().extend(own);
                continue;
            };
            let meets = RefCell::new(BTreeSet::new());
            let implementation = self.text(module, &meets).implementation(item);
            let meets = meets.into_inner();
            // Nobody sees that a trait or a type is there which has no name, or a trait that is met nowhere.
            let able = self.sources.resolve(module, &segments(path), Namespace::Types);
            let is_met =
                able.is_none_or(|able| self.sources.item(&able).is_none() || shown.contains(&able));
            if is_met && meets.iter().all(|met| self.names.contains_key(met)) {
                mentioned.borrow_mut().extend(meets);
                let (short, long) = implementation;
                traits.extend(short);
                longer.extend(long);
            }
        }
        let mut lines = Vec::new();
        for (head, functions) in functions {
            let indent = if head.is_empty() { "" } else { "    " };
            lines.extend((!head.is_empty() && !functions.is_empty()).then_some(head));
            lines.extend(functions.into_values().map(|line| format!("{indent}{line}")));
        }
        if !traits.is_empty() {
            lines.push(format!("impl {}", traits.into_iter().collect::<Vec<_>>().join(", ")));
        }
        lines.extend(longer);
        lines.iter().map(|line| format!("    {line}")).collect()
    }
}

fn put(modules: &mut Modules, path: &str, lines: Vec<String>) {
    let (module, name) = path.rsplit_once("::").expect("an item is in a module");
    modules.entry(module.to_owned()).or_default().entry(name.to_owned()).or_default().extend(lines);
}
