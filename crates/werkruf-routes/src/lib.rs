//! The attributes of the HTTP API for a program without the generator of the OpenAPI document. They read a handler's method and path and
//! ignore what only the document needs, so that the program has no code for a document which is a file.
//!
//! The names and the syntax are those of `utoipa`, which takes their place where the document is generated (feature `openapi` of `werkruf`).

use proc_macro::{TokenStream, TokenTree};

/// Describes a type; writes nothing.
#[proc_macro_derive(ToSchema, attributes(schema))]
pub fn to_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Describes parameters; writes nothing.
#[proc_macro_derive(IntoParams, attributes(into_params, param))]
pub fn into_params(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Names the method and the path of a handler: `#[path(get, path = "/healthz", …)]`. Writes a constant next to it, for [`routes`].
#[proc_macro_attribute]
pub fn path(description: TokenStream, handler: TokenStream) -> TokenStream {
    let route = match Route::of(description, &handler) {
        Ok(route) => route.constant(),
        Err(fault) => format!("::core::compile_error!({fault:?});"),
    };
    let mut tokens = handler;
    tokens.extend(route.parse::<TokenStream>());
    tokens
}

/// The routes of handlers with one path: `routes!(list, create)`.
#[proc_macro]
pub fn routes(handlers: TokenStream) -> TokenStream {
    let names: Vec<String> =
        handlers.into_iter().filter_map(|token| if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None }).collect();
    let Some(first) = names.first() else { return TokenStream::new() };
    let methods: String = names.iter().map(|name| format!(".on({}.method, {name})", constant_of(name))).collect();
    let routes =
        format!("crate::routing::Routes {{ path: {}.path, methods: ::axum::routing::MethodRouter::new(){methods} }}", constant_of(first));
    routes.parse().unwrap_or_default()
}

/// What a description says of a handler.
struct Route {
    handler: String,
    method: String,
    path: String,
}

impl Route {
    fn of(description: TokenStream, handler: &TokenStream) -> Result<Self, &'static str> {
        let mut words = description.into_iter();
        let Some(TokenTree::Ident(method)) = words.next() else { return Err("the first word is the method") };
        let words: Vec<TokenTree> = words.collect();
        let path = words.windows(3).find_map(|words| match words {
            [TokenTree::Ident(key), TokenTree::Punct(_), TokenTree::Literal(path)] if key.to_string() == "path" => Some(path.to_string()),
            _ => None,
        });
        let mut item = handler.clone().into_iter().skip_while(|token| !matches!(token, TokenTree::Ident(word) if word.to_string() == "fn"));
        match (item.nth(1), path) {
            (Some(TokenTree::Ident(name)), Some(path)) => Ok(Self { handler: name.to_string(), method: method.to_string(), path }),
            (_, None) => Err("the description has no path"),
            _ => Err("only a function handles requests"),
        }
    }

    fn constant(&self) -> String {
        let (name, method, path) = (constant_of(&self.handler), self.method.to_uppercase(), &self.path);
        format!(
            "const {name}: crate::routing::Route = crate::routing::Route {{ path: {path}, method: ::axum::routing::MethodFilter::{method} }};"
        )
    }
}

fn constant_of(handler: &str) -> String {
    format!("{}_ROUTE", handler.to_uppercase())
}
