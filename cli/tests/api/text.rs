//! Items as lines: one for each item, field, variant, function and trait.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use quote::{ToTokens, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Expr, Fields, FnArg, Generics, ImplItem, Item, ItemImpl, Meta, Pat, Signature,
    TraitItem, Type, Visibility, parse_quote,
};

use crate::sources::{Namespace, Sources, is_compiled};
use crate::surface::{Surface, segments};

/// Makes text of what stands in one module. Every path is written in full.
pub struct Text<'a> {
    pub surface: &'a Surface<'a>,
    pub sources: &'a Sources,
    pub module: &'a str,
    /// Where everything goes that the text mentions.
    pub mentioned: &'a RefCell<BTreeSet<String>>,
}

/// Attributes that mean something to users.
const SHOWN: [&str; 4] = ["deprecated", "doc(hidden)", "must_use", "non_exhaustive"];

impl Text<'_> {
    /// An item, and what is inside it, indented.
    pub fn item(&self, item: &Item) -> Vec<String> {
        match item {
            Item::Const(item) => {
                let (name, of, value) = (&item.ident, self.of(&item.ty), value(&item.expr));
                vec![marks(&item.attrs) + &format!("pub const {name}: {of}{value}")]
            }
            Item::Static(item) => {
                let (name, of) = (&item.ident, self.of(&item.ty));
                vec![marks(&item.attrs) + &format!("pub static {name}: {of}")]
            }
            Item::Fn(item) => vec![marks(&item.attrs) + "pub " + &self.signature(&item.sig)],
            Item::Type(item) => {
                let (name, of) = (self.named(&item.ident, &item.generics), self.of(&item.ty));
                vec![marks(&item.attrs) + &format!("pub type {name} = {of}")]
            }
            Item::Struct(item) => {
                let name = self.named(&item.ident, &item.generics);
                let (beside, mut lines) = self.fields(&item.fields);
                lines.insert(0, marks(&item.attrs) + &format!("pub struct {name}{beside}"));
                lines
            }
            Item::Enum(item) => {
                let name = self.named(&item.ident, &item.generics);
                let mut lines = vec![marks(&item.attrs) + &format!("pub enum {name}")];
                for variant in item.variants.iter().filter(|one| is_compiled(&one.attrs)) {
                    let number = variant.discriminant.as_ref().map(|(_, number)| value(number));
                    let (name, within) = (&variant.ident, self.variant_fields(&variant.fields));
                    let number = number.unwrap_or_default();
                    lines.push(format!("    {}{name}{within}{number}", marks(&variant.attrs)));
                }
                lines
            }
            Item::Trait(item) => {
                let mut head = item.clone();
                head.items.clear();
                head.attrs.clear();
                let head = self.line(Item::Trait(head));
                let head = head.trim_end_matches("{}").trim_end();
                let mut lines = vec![marks(&item.attrs) + head];
                lines.extend(item.items.iter().map(|item| format!("    {}", self.required(item))));
                lines
            }
            item => panic!("the API does not show this kind of item: {}", quote!(#item)),
        }
    }

    /// For which parameters a type has public functions and constants, if it has parameters; and these, by
    /// their names.
    pub fn own(&self, item: &ItemImpl) -> (String, BTreeMap<String, String>) {
        let head = if item.generics.params.is_empty() { String::new() } else { self.head(item) };
        let mut found = BTreeMap::new();
        for item in &item.items {
            match item {
                ImplItem::Fn(item) if is_public(&item.vis) && is_compiled(&item.attrs) => {
                    let line = marks(&item.attrs) + "pub " + &self.signature(&item.sig);
                    found.insert(item.sig.ident.to_string(), line);
                }
                ImplItem::Const(item) if is_public(&item.vis) && is_compiled(&item.attrs) => {
                    let (name, of, value) = (&item.ident, self.of(&item.ty), value(&item.expr));
                    let line = marks(&item.attrs) + &format!("pub const {name}: {of}{value}");
                    found.insert(name.to_string(), line);
                }
                ImplItem::Fn(_) | ImplItem::Const(_) => {}
                item => panic!("the API does not show this kind of item: {}", quote!(#item)),
            }
        }
        (head, found)
    }

    /// A trait of a type: in short, if the trait is all there is to say of it, or at length.
    pub fn implementation(&self, item: &ItemImpl) -> (Option<String>, Option<String>) {
        let types = item.items.iter().filter_map(|item| match item {
            ImplItem::Type(item) => Some(format!("{} = {}", item.ident, self.of(&item.ty))),
            _ => None,
        });
        let types: Vec<String> = types.collect();
        if !types.is_empty() {
            return (None, Some(format!("{} {{ {} }}", self.head(item), types.join(", "))));
        }
        let head = self.head(item);
        let short = head.strip_prefix("impl ").and_then(|head| head.split_once(" for "));
        match (short, &*item.self_ty) {
            (Some((able, of)), Type::Path(_)) if !of.contains(['<', ' ']) => {
                (Some(able.to_owned()), None)
            }
            _ => (None, Some(head)),
        }
    }

    fn head(&self, item: &ItemImpl) -> String {
        let mut head = item.clone();
        head.items.clear();
        head.attrs.clear();
        let head = self.line(Item::Impl(head));
        head.trim_end_matches("{}").trim_end().to_owned()
    }

    /// Describes an item that a trait requires or provides.
    fn required(&self, item: &TraitItem) -> String {
        match item {
            TraitItem::Fn(item) => {
                let provided = if item.default.is_some() { " { .. }" } else { "" };
                marks(&item.attrs) + &self.signature(&item.sig) + provided
            }
            TraitItem::Const(item) => {
                let provided = if item.default.is_some() { " = .." } else { "" };
                format!("const {}: {}{provided}", item.ident, self.of(&item.ty))
            }
            TraitItem::Type(item) => {
                if item.bounds.is_empty() {
                    return format!("type {}", item.ident);
                }
                let bounds = &item.bounds;
                let bounds = self.of(&parse_quote!(impl #bounds));
                format!("type {}: {}", item.ident, bounds.trim_start_matches("impl "))
            }
            item => panic!("the API does not show this kind of item: {}", quote!(#item)),
        }
    }

    /// Returns the text beside the name of a struct, and the lines below it.
    fn fields(&self, fields: &Fields) -> (String, Vec<String>) {
        match fields {
            Fields::Unit => (String::new(), Vec::new()),
            Fields::Unnamed(fields) => {
                let fields = fields.unnamed.iter().map(|field| match &field.vis {
                    Visibility::Public(_) => format!("pub {}", self.of(&field.ty)),
                    _ => "_".to_owned(),
                });
                (format!("({})", fields.collect::<Vec<_>>().join(", ")), Vec::new())
            }
            Fields::Named(fields) => {
                let fields = fields.named.iter().filter(|field| is_compiled(&field.attrs));
                let (public, private): (Vec<_>, Vec<_>) =
                    fields.partition(|field| is_public(&field.vis));
                let line = |field: &&syn::Field| {
                    let name = field.ident.as_ref().expect("a named field");
                    format!("    {}pub {name}: {}", marks(&field.attrs), self.of(&field.ty))
                };
                let mut lines: Vec<String> = public.iter().map(line).collect();
                if !private.is_empty() {
                    lines.push("    (private fields)".to_owned());
                }
                (String::new(), lines)
            }
        }
    }

    fn variant_fields(&self, fields: &Fields) -> String {
        let texts = fields.iter().map(|field| match &field.ident {
            Some(name) => format!("{name}: {}", self.of(&field.ty)),
            None => self.of(&field.ty),
        });
        let texts = texts.collect::<Vec<_>>().join(", ");
        match fields {
            Fields::Unit => String::new(),
            Fields::Unnamed(_) => format!("({texts})"),
            Fields::Named(_) => format!(" {{ {texts} }}"),
        }
    }

    /// The traits that are derived.
    pub fn derived(&self, item: &Item) -> BTreeSet<String> {
        let (attributes, fields) = match item {
            Item::Struct(item) => (&item.attrs, vec![&item.fields]),
            Item::Enum(item) => {
                (&item.attrs, item.variants.iter().map(|one| &one.fields).collect())
            }
            _ => return BTreeSet::new(),
        };
        let mut traits = BTreeSet::new();
        for attribute in attributes.iter().filter(|one| one.path().is_ident("derive")) {
            let nested = attribute.parse_nested_meta(|meta| {
                let name = meta.path.segments.last().expect("a trait has a name").ident.to_string();
                match name.as_str() {
                    "Error" => {
                        traits
                            .extend(["std::error::Error", "std::fmt::Display"].map(str::to_owned));
                    }
                    "Debug" => drop(traits.insert("std::fmt::Debug".to_owned())),
                    "Hash" => drop(traits.insert("std::hash::Hash".to_owned())),
                    "Serialize" | "Deserialize" => drop(traits.insert(format!("serde::{name}"))),
                    "Clone" | "Copy" | "Default" | "PartialEq" | "Eq" | "PartialOrd" | "Ord" => {
                        traits.insert(name);
                    }
                    other => panic!("the API does not know what {other} derives"),
                }
                Ok(())
            });
            nested.expect("a list of traits");
        }
        // Of `thiserror`.
        for field in fields.into_iter().flatten() {
            if field.attrs.iter().any(|attribute| attribute.path().is_ident("from")) {
                traits.insert(format!("From<{}>", self.of(&field.ty)));
            }
        }
        traits
    }

    fn named(&self, name: &syn::Ident, generics: &Generics) -> String {
        let (parameters, condition) = (&generics.params, &generics.where_clause);
        let line = self.line(parse_quote!(struct #name <#parameters> #condition;));
        line.trim_start_matches("struct ").trim_end_matches(';').replace("<>", "")
    }

    fn signature(&self, signature: &Signature) -> String {
        let mut signature = signature.clone();
        // Whether a function changes its own argument is its own business, and so is how it takes it apart.
        for argument in &mut signature.inputs {
            match argument {
                FnArg::Receiver(own) if own.reference.is_none() => own.mutability = None,
                FnArg::Receiver(_) => {}
                FnArg::Typed(typed) => match &mut *typed.pat {
                    Pat::Ident(name) => name.mutability = None,
                    pattern => *pattern = parse_quote!(_),
                },
            }
        }
        let line = self.line(parse_quote!(#signature {}));
        line.trim_end_matches("{}").trim_end().to_owned()
    }

    fn of(&self, of: &Type) -> String {
        let line = self.line(parse_quote!(type X = #of;));
        line.trim_start_matches("type X = ").trim_end_matches(';').to_owned()
    }

    /// One line, with every path in full.
    fn line(&self, mut item: Item) -> String {
        InFull(self).visit_item_mut(&mut item);
        let file = syn::File { shebang: None, attrs: Vec::new(), items: vec![item] };
        joined(&prettyplease::unparse(&file))
    }
}

/// Writes paths in full.
struct InFull<'a>(&'a Text<'a>);

impl VisitMut for InFull<'_> {
    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        visit_mut::visit_path_mut(self, path);
        let Text { surface, sources, module, mentioned } = self.0;
        let words = segments(path);
        let found = [Namespace::Types, Namespace::Values]
            .into_iter()
            .find_map(|space| sources.resolve(module, &words, space));
        // `Self`, parameters, and the names of the prelude are full.
        let Some(definition) = found else { return };
        // Of a variant or a constant of a type, the type.
        let mut of = definition.as_str();
        while sources.item(of).is_none() {
            match of.rsplit_once("::") {
                Some((before, _)) => of = before,
                None => break,
            }
        }
        let name = if sources.item(of).is_some() {
            mentioned.borrow_mut().insert(of.to_owned());
            surface.name(of) + &definition[of.len()..]
        } else {
            definition.clone()
        };
        let arguments = path.segments.last().map(|last| last.arguments.clone());
        let mut full: syn::Path = syn::parse_str(&name).expect("a name is a path");
        if let (Some(last), Some(arguments)) = (full.segments.last_mut(), arguments) {
            last.arguments = arguments;
        }
        *path = full;
    }

    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}

    fn visit_visibility_mut(&mut self, _: &mut Visibility) {}
}

/// The lines of something as one, with the commas of one line.
fn joined(text: &str) -> String {
    let mut line = String::new();
    for next in text.lines().map(str::trim) {
        if next.starts_with([')', '>', ']', '{', ';']) && line.ends_with(',') {
            line.pop();
        }
        let is_tight = line.is_empty()
            || line.ends_with(['(', '<', '['])
            || next.starts_with([')', '>', ']', ';']);
        if !is_tight {
            line.push(' ');
        }
        line += next;
    }
    line.trim_end_matches(',').to_owned()
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The attributes that are shown, each before a blank.
fn marks(attributes: &[Attribute]) -> String {
    let texts = attributes.iter().filter_map(|attribute| {
        let text = match &attribute.meta {
            Meta::List(list) => quote!(#list).to_string().replace(' ', ""),
            // Not the reason.
            meta => meta.path().to_token_stream().to_string(),
        };
        SHOWN.contains(&text.as_str()).then(|| format!("#[{text}] "))
    });
    texts.collect()
}

/// A value that is written in numbers; others are not shown.
fn value(expression: &Expr) -> String {
    fn is_number(expression: &Expr) -> bool {
        match expression {
            Expr::Lit(_) => true,
            Expr::Paren(inner) => is_number(&inner.expr),
            Expr::Unary(inner) => is_number(&inner.expr),
            Expr::Binary(inner) => is_number(&inner.left) && is_number(&inner.right),
            _ => false,
        }
    }
    if is_number(expression) {
        format!(" = {}", expression.to_token_stream())
    } else {
        String::new()
    }
}
