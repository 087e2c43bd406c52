; What C# defines. `@local` is what hides its inside, as a method does.
(namespace_declaration name: (_) @name) @module
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(struct_declaration name: (identifier) @name) @struct
(interface_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_member_declaration name: (identifier) @name) @constant
(delegate_declaration name: (identifier) @name) @type
(method_declaration name: (identifier) @name) @function
(constructor_declaration name: (identifier) @name) @function
(local_function_statement) @local
(property_declaration name: (identifier) @name) @variable
(event_field_declaration (variable_declaration (variable_declarator name: (identifier) @name))) @variable
(field_declaration (variable_declaration (variable_declarator name: (identifier) @name (_)? @until))) @variable
(lambda_expression) @local
(anonymous_method_expression) @local
