; What JavaScript defines. `@local` is what hides its inside, as a function does.
(lexical_declaration (variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @function)
(variable_declaration (variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @function)
(lexical_declaration (variable_declarator name: (identifier) @name) @variable)
(variable_declaration (variable_declarator name: (identifier) @name) @variable)
(expression_statement (assignment_expression
  left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression)] @until) @function)
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(class_declaration name: (identifier) @name) @class
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @function
(field_definition property: [(property_identifier) (private_property_identifier)] @name value: [(arrow_function) (function_expression)]) @function
(field_definition property: [(property_identifier) (private_property_identifier)] @name) @variable
(arrow_function) @local
(function_expression) @local
(generator_function) @local
