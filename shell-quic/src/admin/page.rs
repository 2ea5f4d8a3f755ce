//! The live overload page: one file that asks for `/ledger` once a second and draws it.
//!
//! Its policy names the page's own scripts and styles by their hashes: nothing else is run, and
//! nothing is fetched from elsewhere. Numbers, colours and uPlot are those of the simulator's
//! report.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::header::{HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The page, with a place for each part.
const TEMPLATE: &str = include_str!("../../assets/live.html");

const STYLE: &str = concat!(
    include_str!("../../../sim/assets/vendor/uPlot.min.css"),
    include_str!("../../../sim/assets/report.css"),
    include_str!("../../assets/live.css"),
);

const UPLOT: &str = include_str!("../../../sim/assets/vendor/uPlot.iife.min.js");

const MODULE: &str = concat!(
    include_str!("../../../sim/assets/numbers.mjs"),
    include_str!("../../assets/live.mjs"),
);

/// The page and its policy.
struct Page {
    html: String,
    policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let mut html = TEMPLATE.to_owned();
    for (place, part) in [("{{style}}", STYLE), ("{{uplot}}", UPLOT), ("{{module}}", MODULE)] {
        html = html.replacen(place, part, 1);
    }
    let [style, uplot, module] = [STYLE, UPLOT, MODULE].map(source);
    let policy = format!(
        "default-src 'none'; script-src {uplot} {module}; style-src {style}; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Page { html, policy }
});

/// How a policy names a part of the page.
fn source(part: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(part.as_bytes())))
}

/// Answers with it.
pub(super) async fn page() -> impl IntoResponse {
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, &PAGE.policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, PAGE.html.as_str())
}
