-- A memory as the first version made it.
PRAGMA application_id = 1667722545;
CREATE TABLE passages (
    number       INTEGER PRIMARY KEY,
    origin       TEXT NOT NULL,
    place        INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    at_ns        INTEGER NOT NULL,
    principal    TEXT NOT NULL,
    actor        TEXT NOT NULL,
    conversation TEXT NOT NULL,
    run          TEXT NOT NULL,
    call         TEXT NOT NULL,
    tool         TEXT NOT NULL,
    workspace    TEXT NOT NULL,
    path         TEXT NOT NULL,
    line         INTEGER NOT NULL,
    stamp        TEXT NOT NULL,
    redacted     INTEGER NOT NULL,
    tags         TEXT NOT NULL,
    words        TEXT NOT NULL,
    UNIQUE (origin, place)
) STRICT;
CREATE INDEX passages_by_age ON passages (kind, principal, at_ns);
CREATE INDEX passages_by_file ON passages (workspace, path, stamp) WHERE kind = 'file';
CREATE VIRTUAL TABLE passage_words USING fts5(words, tags, content='passages', content_rowid='number', tokenize="unicode61 remove_diacritics 2 categories 'L* N* So'");
CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
    INSERT INTO passage_words (rowid, words, tags) VALUES (new.number, new.words, new.tags);
END;
CREATE TRIGGER passage_dropped AFTER DELETE ON passages BEGIN
    INSERT INTO passage_words (passage_words, rowid, words, tags) VALUES ('delete', old.number, old.words, old.tags);
END;
CREATE TABLE cursors (
    journal  TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE marks (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace TEXT NOT NULL,
    path      TEXT NOT NULL,
    since_ns  INTEGER NOT NULL,
    cause     TEXT NOT NULL,
    failures  INTEGER NOT NULL,
    UNIQUE (workspace, path)
) STRICT;
CREATE TABLE trees (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    root   TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE indexed (
    number INTEGER PRIMARY KEY,
    tree   INTEGER NOT NULL,
    path   TEXT NOT NULL,
    stamp  TEXT NOT NULL,
    kind   TEXT NOT NULL,
    bytes  INTEGER NOT NULL,
    UNIQUE (tree, path)
) STRICT;
CREATE VIRTUAL TABLE grams USING fts5(
    text, content='', contentless_delete=1, detail=none, tokenize='trigram case_sensitive 1'
);
PRAGMA user_version = 1;
