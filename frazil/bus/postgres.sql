-- Everything the Postgres bus keeps. Run at each connect, under an advisory lock; each statement may run again.
create schema if not exists frazil_bus;

create table if not exists frazil_bus.stream (
    name text primary key,
    identity text not null unique,
    first bigint not null,
    head bigint not null,
    bytes bigint not null default 0
);

create table if not exists frazil_bus.message (
    identity text not null references frazil_bus.stream (identity) on delete cascade,
    sequence bigint not null,
    headers text not null,
    body bytea not null,
    primary key (identity, sequence)
);
-- Bodies are compressed already.
alter table frazil_bus.message alter column body set storage external;

create table if not exists frazil_bus.published (
    identity text not null references frazil_bus.stream (identity) on delete cascade,
    message_id text not null,
    last bigint not null,
    at timestamptz not null default clock_timestamp(),
    primary key (identity, message_id)
);
create index if not exists published_at on frazil_bus.published (identity, at);

create table if not exists frazil_bus.consumer (
    identity text not null references frazil_bus.stream (identity) on delete cascade,
    consumer text not null,
    next bigint not null,
    primary key (identity, consumer)
);

create table if not exists frazil_bus.claimed (
    identity text not null,
    consumer text not null,
    sequence bigint not null,
    batch_id text,
    lease_until timestamptz,
    attempts integer not null default 1,
    reason text not null default '',
    acked boolean not null default false,
    primary key (identity, consumer, sequence),
    foreign key (identity, consumer) references frazil_bus.consumer (identity, consumer) on delete cascade
);
create index if not exists claimed_batch on frazil_bus.claimed (batch_id);
create index if not exists claimed_open on frazil_bus.claimed (identity, consumer, sequence) where not acked;
