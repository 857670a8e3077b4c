//! Recorded answers, where somebody keeps them beside the checkout. They are not part of this repository.

use serde_json::Value;

use crate::{open, read, workspace};

/// The file's bytes, or nothing, said once, if the samples are not here.
fn sample(name: &str) -> Option<Vec<u8>> {
    let folder = workspace().join("../shared/venues/samples");
    if !folder.is_dir() {
        eprintln!("skipped: there are no recorded samples in {}", folder.display());
        return None;
    }
    Some(std::fs::read(folder.join(name)).unwrap())
}

#[test]
fn the_hash_of_every_recorded_polymarket_book_is_made_anew() {
    let names = ["clob-book.json", "clob-book-2.json", "clob-book-no-bids.json", "clob-books.json"];
    let pairs = ["clob-book-pair-up.json", "clob-book-pair-down.json"];
    for name in names.iter().chain(&pairs) {
        let Some(body) = sample(&format!("polymarket/{name}")) else { return };
        let value: Value = serde_json::from_slice(&body).unwrap();
        let books = value.as_array().cloned().unwrap_or_else(|| vec![value]);
        let tokens: Vec<&str> = books.iter().map(|book| book["asset_id"].as_str().unwrap()).collect();
        let page = read("polymarket", &tokens, &body).unwrap();
        assert_eq!((page.books().len(), page.unreadable().len(), page.missing().len()), (books.len(), 0, 0));
        assert!(page.books().all(|book| book.hash_ok == Some(true) && book.flags.is_empty()), "{name}");
        // And the same in the venue's own spelling, through the scanner.
        let compact = serde_json::to_vec(&books).unwrap();
        let again = read("polymarket", &tokens, &compact).unwrap();
        assert_eq!(again.books().len(), books.len());
    }
}

#[test]
fn recorded_listings_and_books_are_read() {
    let Some(markets) = sample("polymarket/gamma-markets-by-slug.json") else { return };
    let page = [b"{\"markets\":".as_slice(), &markets, b"}"].concat();
    let read_page = open("polymarket").discovers.unwrap().walk().read(&page).unwrap();
    assert_eq!((read_page.instruments.len(), read_page.skipped.len()), (2, 0));

    let active = sample("limitless/markets-active.json").unwrap();
    let read_page = open("limitless").discovers.unwrap().walk().read(&active).unwrap();
    assert_eq!((read_page.instruments.len(), read_page.skipped.len()), (1, 0));
    let book = sample("limitless/orderbook.json").unwrap();
    let page = read("limitless", &["slug"], &book).unwrap();
    assert!(page.books().all(|book| book.flags.is_empty()));
    assert_eq!(page.books().len(), 1);

    let markets = sample("kalshi/markets-page.json").unwrap();
    let read_page = open("kalshi").discovers.unwrap().walk().read(&markets).unwrap();
    assert_eq!((read_page.instruments.len(), read_page.not_tradable), (0, 1), "a combination");
    let book = sample("kalshi/orderbook-one-sided.json").unwrap();
    let page = read("kalshi", &["KXBTCD"], &book).unwrap();
    assert_eq!(page.books().len(), 1);
    assert!(page.books().all(|book| book.flags.is_empty()));
}
