//! `get_cerebro_articles`: finds articles by words and tags, among those of the caller's branch and those without a branch.

use crate::store::{ArticleQuery, ArticleRow, Listing};
use crate::texts::TEXTS;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Texts, Tool, ToolSpec};

use super::access::{OwnerFilter, WorkspaceAccess, failed, spec};
use super::phrase::Phrase;
use super::render;
use super::whole_number::WholeNumber;

const MAX_ARTICLES: i64 = 20;
const DEFAULT_ARTICLES: WholeNumber = WholeNumber(10);

pub(super) struct GetCerebroArticles(pub(super) WorkspaceAccess);

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Words to look for in title, content and tags
    #[serde(rename = "searchTerm", skip_serializing_if = "Option::is_none")]
    search_term: Option<String>,
    /// Tags to filter by, such as ['notfall', 'emergency']; one of them is enough
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<Vec<String>>,
    /// How many articles at most, 1 to 20
    #[serde(default = "default_limit", skip_serializing_if = "Option::is_none")]
    limit: Option<WholeNumber>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde needs a default of the field's type")]
const fn default_limit() -> Option<WholeNumber> {
    Some(DEFAULT_ARTICLES)
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Articles {
    items: Vec<Article>,
    count: usize,
    truncated: bool,
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Article {
    id: i64,
    title: String,
    content: String,
    tags: Vec<String>,
}

impl Tool for GetCerebroArticles {
    type Args = Args;
    type Output = Articles;

    fn spec(&self) -> ToolSpec {
        let description = "Looks up Cerebro articles (the company's own knowledge) by words or tags. Only articles the caller may read.";
        spec("get_cerebro_articles", description, Some("cerebro:cerebro:read"))
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Articles>, Failure> {
        let row_scope = self.0.row_scope(&invocation, invocation.grant, OwnerFilter::default()).await?;
        let limit = args.limit.unwrap_or(DEFAULT_ARTICLES).0.clamp(1, MAX_ARTICLES);
        let search = args.search_term.filter(|term| !term.trim().is_empty());
        let tags = args.tags.unwrap_or_default();
        let query = ArticleQuery { row_scope, search: search.clone(), tags: tags.clone(), limit: u32::try_from(limit).unwrap_or(1) };
        let found = self.0.workspace.articles(invocation.principal.tenant_id, query).await.map_err(|error| failed(&error))?;
        let message = message(&invocation.texts().with(&TEXTS), search.as_deref(), &tags, &found);
        let truncated = found.truncated;
        let items: Vec<Article> = found.rows.into_iter().map(article).collect();
        let mut reply = Reply::new(Articles { count: items.len(), items, truncated, message: message.clone() });
        reply.message = Some(message);
        Ok(reply)
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let wanted = Phrase::read(text, locale, today).articles()?;
        let tags = Some(wanted.tags).filter(|tags| !tags.is_empty());
        Some(Args { search_term: wanted.search, tags, limit: None })
    }
}

fn article(row: ArticleRow) -> Article {
    let ArticleRow { id, title, content, tags } = row;
    Article { id, title, content, tags }
}

fn message(texts: &Texts, search: Option<&str>, tags: &[String], found: &Listing<ArticleRow>) -> String {
    let mut filter = String::new();
    if let Some(term) = search {
        filter = format!(" {}", texts.text("articles-term", &[("term", render::excerpt(term).into())]));
    }
    if !tags.is_empty() {
        filter = format!("{filter} {}", texts.text("articles-tags", &[("tags", render::excerpt(&tags.join(", ")).into())]));
    }
    if found.rows.is_empty() {
        return texts.text("articles-none", &[("filter", filter.into())]);
    }
    let count = found.rows.len();
    let headline = texts.text("articles-found", &[("count", count.into()), ("filter", filter.into())]);
    let more = found.truncated.then(|| texts.text("articles-more", &[("count", count.into())]));
    let lines = found.rows.iter().map(|row| format!("{}: {}", render::line(&row.title), render::excerpt(&row.content)));
    render::list(headline, lines, more)
}
