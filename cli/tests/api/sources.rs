//! The sources of the crates: modules, their items, and what a name means in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Ident, Index, Item, ItemUse, Lit, LitStr, Meta, Token, UseTree, Variant,
    Visibility, parse_quote,
};

/// All modules, by their paths, as `fabric::path::sender`.
#[derive(Default)]
pub struct Sources {
    modules: BTreeMap<String, Module>,
}

/// Contents of one file, or between the braces of an inline module.
#[derive(Default)]
pub struct Module {
    /// Everything that is compiled, but for uses and macros.
    pub items: Vec<Item>,
    /// A name for what is defined elsewhere.
    pub uses: Vec<Use>,
}

/// A name that a `use` brings into a module.
pub struct Use {
    pub name: String,
    pub is_public: bool,
    /// Empty in front if it begins with `::`.
    path: Vec<String>,
}

/// Names of types and modules are apart from names of functions and constants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    Types,
    Values,
}

/// Macros that define nothing public that programs can see.
const MACROS_WITHOUT_API: [&str; 5] =
    ["macro_rules", "messages", "fields", "as_other", "thread_local"];

impl Sources {
    /// Reads the crates `names`, each from the folder of its name.
    pub fn read(top: &Path, names: &[&str]) -> Sources {
        let mut sources = Sources::default();
        for name in names {
            sources.read_file(name, &top.join(name).join("src/lib.rs"));
        }
        sources
    }

    /// A crate that is one text.
    pub fn add_text(&mut self, name: &str, text: &str) {
        let items = syn::parse_file(text).unwrap().items;
        self.add(name, items, Path::new("none"));
    }

    fn read_file(&mut self, name: &str, file: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let items = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        // Modules of `lib.rs` and `mod.rs` lie beside them, those of `name.rs` in the folder `name`.
        let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("lib" | "mod") => file.parent().expect("a file lies in a folder").to_owned(),
            _ => file.with_extension(""),
        };
        self.add(name, items.items, &folder);
    }

    fn add(&mut self, name: &str, items: Vec<Item>, folder: &Path) {
        let mut module = Module::default();
        for item in items {
            if !is_compiled(attributes(&item)) {
                continue;
            }
            match item {
                Item::Use(item) => module.uses.extend(uses(&item)),
                Item::Macro(item) => {
                    let called = &item.mac.path.segments.last().expect("a macro has a name").ident;
                    if called == "listed" {
                        let listed: Listed = item.mac.parse_body().expect("as `listed` has it");
                        module.items.extend(listed.items());
                    } else {
                        let is_known = MACROS_WITHOUT_API.iter().any(|known| called == known);
                        assert!(is_known, "{name}: does {called}! define anything public?");
                    }
                }
                Item::Mod(mut item) => {
                    let child = format!("{name}::{}", item.ident);
                    match item.content.take() {
                        Some((_, items)) => {
                            self.add(&child, items, &folder.join(item.ident.to_string()));
                        }
                        None => {
                            let beside = folder.join(format!("{}.rs", item.ident));
                            let within = folder.join(format!("{}/mod.rs", item.ident));
                            let file = if beside.exists() { beside } else { within };
                            self.read_file(&child, &file);
                        }
                    }
                    module.items.push(Item::Mod(item));
                }
                item => module.items.push(item),
            }
        }
        self.modules.insert(name.to_owned(), module);
    }

    pub fn module(&self, path: &str) -> Option<&Module> {
        self.modules.get(path)
    }

    /// All modules with their paths.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &Module)> {
        self.modules.iter().map(|(path, module)| (path.as_str(), module))
    }

    /// The item that is defined at `path`, if it is no module.
    pub fn item(&self, path: &str) -> Option<&Item> {
        let (module, name) = path.rsplit_once("::")?;
        let items = self.module(module)?.items.iter();
        let mut items = items.filter(|item| !matches!(item, Item::Mod(_)));
        items.find(|item| defined(item).is_some_and(|(own, _)| own == name))
    }

    /// Where a name of a module is defined.
    pub fn find(&self, module: &str, name: &str, space: Namespace) -> Option<String> {
        let Module { items, uses } = self.module(module)?;
        if items.iter().filter_map(defined).any(|(own, of)| own == name && of == space) {
            return Some(format!("{module}::{name}"));
        }
        let named = uses.iter().filter(|used| used.name == name);
        named.filter_map(|used| self.resolve(module, &used.path, space)).next()
    }

    /// Where that is defined which `path` means in a module: in one of these crates, or in another one. None
    /// for what needs no definition, as `Self` and the names of the prelude.
    pub fn resolve(&self, module: &str, path: &[String], space: Namespace) -> Option<String> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => module.split("::").next()?.to_owned(),
            "self" => module.to_owned(),
            "super" => module.rsplit_once("::")?.0.to_owned(),
            "" => {
                let (name, others) = rest.split_first()?;
                rest = others;
                name.clone()
            }
            name if rest.is_empty() => return self.find(module, name, space),
            name => match self.find(module, name, Namespace::Types) {
                Some(found) => found,
                // Names of crates are small; `Self` and parameters of types are not.
                None if name.starts_with(char::is_lowercase) => name.to_owned(),
                None => return None,
            },
        };
        for (index, name) in rest.iter().enumerate() {
            let space = if index + 1 == rest.len() { space } else { Namespace::Types };
            at = match self.module(&at) {
                Some(_) if name == "super" => at.rsplit_once("::")?.0.to_owned(),
                Some(_) => self.find(&at, name, space)?,
                // A variant, or something of another crate.
                None => format!("{at}::{name}"),
            };
        }
        Some(at)
    }

    /// Where that is defined which a public `use` shows. A name can stand for a module and a function.
    pub fn shown_by(&self, module: &str, used: &Use) -> Vec<String> {
        let both = [Namespace::Types, Namespace::Values];
        let mut found: Vec<String> =
            both.iter().filter_map(|space| self.resolve(module, &used.path, *space)).collect();
        found.dedup();
        assert!(!found.is_empty(), "{module}: nothing is found at {}", used.path.join("::"));
        found
    }
}

/// The name that an item defines.
pub fn defined(item: &Item) -> Option<(String, Namespace)> {
    use Namespace::{Types, Values};
    let (name, space) = match item {
        Item::Const(item) => (&item.ident, Values),
        Item::Enum(item) => (&item.ident, Types),
        Item::Fn(item) => (&item.sig.ident, Values),
        Item::Mod(item) => (&item.ident, Types),
        Item::Static(item) => (&item.ident, Values),
        Item::Struct(item) => (&item.ident, Types),
        Item::Trait(item) => (&item.ident, Types),
        Item::Type(item) => (&item.ident, Types),
        Item::Impl(_) => return None,
        item => panic!("the API does not know this kind of item: {}", quote!(#item)),
    };
    Some((name.to_string(), space))
}

pub fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
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

/// Returns true if an item is compiled for a user on x86-64 who has all features.
pub fn is_compiled(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.all(|attribute| holds(&attribute.parse_args().expect("`cfg` has a condition")))
}

fn holds(condition: &Meta) -> bool {
    let name = condition.path().get_ident().expect("a condition is a word").to_string();
    let parts = || {
        let list = condition.require_list().expect("a list of conditions");
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).expect("conditions")
    };
    match name.as_str() {
        "all" => parts().iter().all(holds),
        "any" => parts().iter().any(holds),
        "not" => !parts().iter().all(holds),
        "feature" => true,
        "loom" | "test" => false,
        "target_arch" => {
            let value = &condition.require_name_value().expect("a name of a processor").value;
            matches!(value, Expr::Lit(one) if matches!(&one.lit, Lit::Str(s) if s.value() == "x86_64"))
        }
        other => panic!("the API does not know whether {other} holds"),
    }
}

fn uses(item: &ItemUse) -> Vec<Use> {
    let mut found = Vec::new();
    let start = if item.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
    let is_public = matches!(item.vis, Visibility::Public(_));
    gather(&item.tree, start, is_public, &mut found);
    found
}

fn gather(tree: &UseTree, mut path: Vec<String>, is_public: bool, found: &mut Vec<Use>) {
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            gather(&tree.tree, path, is_public, found);
        }
        UseTree::Name(tree) if tree.ident == "self" => {
            let name = path.last().expect("`self` stands behind a path").clone();
            found.push(Use { name, is_public, path });
        }
        UseTree::Name(tree) => {
            let name = tree.ident.to_string();
            path.push(name.clone());
            found.push(Use { name, is_public, path });
        }
        UseTree::Rename(tree) => {
            path.push(tree.ident.to_string());
            found.push(Use { name: tree.rename.to_string(), is_public, path });
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                gather(tree, path.clone(), is_public, found);
            }
        }
        UseTree::Glob(_) => assert!(!is_public, "a public glob: name what it shows"),
    }
}

/// The input of `fabric::listed!`.
struct Listed {
    attributes: Vec<Attribute>,
    name: Ident,
    variants: Vec<Variant>,
    has_names: bool,
}

impl Parse for Listed {
    fn parse(input: ParseStream<'_>) -> syn::Result<Listed> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Token![enum]>()?;
        let name = input.parse()?;
        let body;
        syn::braced!(body in input);
        let (mut variants, mut has_names) = (Vec::new(), false);
        while !body.is_empty() {
            let attributes = body.call(Attribute::parse_outer)?;
            let name: Ident = body.parse()?;
            let has_number = body.peek(Token![=]) && !body.peek(Token![=>]);
            let mut variant: Variant = parse_quote!(#(#attributes)* #name);
            if has_number {
                variant.discriminant = Some((body.parse()?, Expr::Lit(body.parse()?)));
            }
            variants.push(variant);
            if body.parse::<Option<Token![=>]>>()?.is_some() {
                body.parse::<LitStr>()?;
                has_names = true;
            }
            body.parse::<Option<Token![,]>>()?;
        }
        Ok(Listed { attributes, name, variants, has_names })
    }
}

impl Listed {
    /// Returns the items that the macro expands to.
    fn items(self) -> [Item; 2] {
        let Listed { attributes, name, variants, has_names } = self;
        let count = Index::from(variants.len());
        let function = has_names.then(|| {
            quote!(
                pub fn name(self) -> &'static str {}
            )
        });
        [
            parse_quote!(#(#attributes)* pub enum #name { #(#variants),* }),
            parse_quote!(impl #name { pub const ALL: [#name; #count] = []; #function }),
        ]
    }
}
